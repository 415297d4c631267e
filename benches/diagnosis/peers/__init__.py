"""TraceML and loadtune on the same scripts."""
