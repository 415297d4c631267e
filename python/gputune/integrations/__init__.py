"""Callbacks that report the steps of a framework, for scripts in which the torch hook cannot see them.

    from gputune.integrations.lightning import GputuneCallback

    Trainer(callbacks=[GputuneCallback()])

Each module imports its framework: `accelerate`, `keras`, `lightning`, `transformers`. Outside a probe the callbacks do
nothing.
"""
