"""Where the hook begins: called once torch is imported."""

from __future__ import annotations

from gputune._client import Reporter
from gputune._hook import writes

_is_installed = False


def torch_backend() -> None:
    """Installs the hook in this process, once; does nothing outside a probe and never raises."""
    global _is_installed
    writes.install_or_end()
    try:
        reporter = Reporter.current()
        if reporter is None or _is_installed or not isinstance(reporter.probe.get("apply"), dict):
            return
        if reporter.probe.get("adapter") != "torch":
            return
        _is_installed = True
        from gputune._hook import install  # imports torch's parts, so not before torch is there

        install.install(reporter.probe)
    except Exception as error:
        _report(error)


def _report(error: Exception) -> None:
    try:
        reporter = Reporter.current()
        if reporter is not None:
            reporter.send("error", kind="failed", message=f"gputune's hook: {type(error).__name__}: {error}")
    except Exception:  # `import torch` goes first
        pass
