"""The hook of the torch adapter: applies a probe's settings to an unmodified training script, and times its steps.

`import torch` calls `entry.torch_backend`. `targets.TARGETS` lists what can be set. `docs/adapters.md` says what each
setting does, and what counts as a step.
"""
