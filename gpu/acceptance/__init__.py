"""Checks of gputune on a machine with an NVIDIA GPU. Needs Python's standard library, and PyTorch for most checks."""
