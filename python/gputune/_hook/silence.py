"""Silences experiment trackers and model hubs that no variable silences, or whose variable a script can override.

gputune sets the documented variables of each tracker. If the spec sets such a variable to another value, gputune keeps
that value, and this module does not replace the functions of the variable. `GPUTUNE_TRACKERS=allow` turns all of this
off.
"""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType
from typing import Any, Callable

from gputune._hook import importing

Function = Callable[..., Any]

#: Set to `silent` in each probe.
TRACKERS = "GPUTUNE_TRACKERS"

#: Functions whose argument overrides a variable: module, name, argument, and the value that the argument gets. The last
#: two members are a condition: the argument is replaced only if this variable has this value.
_ARGUMENTS: tuple[tuple[str, str, str, Any, str, str], ...] = (
    ("wandb", "init", "mode", "disabled", "WANDB_MODE", "disabled"),
    ("neptune", "init_run", "mode", "debug", "NEPTUNE_MODE", "debug"),
    ("neptune", "init_model", "mode", "debug", "NEPTUNE_MODE", "debug"),
    ("neptune", "init_model_version", "mode", "debug", "NEPTUNE_MODE", "debug"),
    ("neptune", "init_project", "mode", "debug", "NEPTUNE_MODE", "debug"),
    ("swanlab", "init", "mode", "disabled", "SWANLAB_MODE", "disabled"),
    ("comet_ml", "Experiment.__init__", "disabled", True, "COMET_AUTO_LOG_DISABLE", "1"),
    ("comet_ml", "OfflineExperiment.__init__", "disabled", True, "COMET_AUTO_LOG_DISABLE", "1"),
    ("comet_ml", "ExistingExperiment.__init__", "disabled", True, "COMET_AUTO_LOG_DISABLE", "1"),
    ("mlflow.tracking", "MlflowClient.__init__", "tracking_uri", None, TRACKERS, "silent"),
    ("mlflow", "set_tracking_uri", "uri", None, TRACKERS, "silent"),
    ("mlflow", "set_registry_uri", "uri", None, TRACKERS, "silent"),
    ("dvclive.live", "Live.__init__", "save_dvc_exp", False, TRACKERS, "silent"),
    ("trackio", "init", "space_id", None, TRACKERS, "silent"),
    ("trackio", "init", "dataset_id", None, TRACKERS, "silent"),
    ("trackio", "init", "bucket_id", None, TRACKERS, "silent"),
    ("trackio", "init", "server_url", None, TRACKERS, "silent"),
)

#: Prefixes of the names of methods that write to the hub.
_HUB_WRITES = ("create_", "upload_", "delete_", "add_", "move_", "update_", "super_squash_", "preupload_", "batch_bucket_")
_HUB_WRITES += ("sync_bucket", "copy_files", "duplicate_", "merge_", "rename_", "edit_", "change_", "comment_", "enable_")
_HUB_COMMITS = ("create_commit", "upload_file", "upload_folder", "delete_file", "delete_files", "delete_folder")


def install() -> None:
    """Installs the replacements. Does nothing outside a probe."""
    if os.environ.get(TRACKERS) != "silent":
        return
    for name in dict.fromkeys(row[0] for row in _ARGUMENTS):
        importing.after(name, functools.partial(_fix_arguments, name))
    importing.after("huggingface_hub.hf_api", _stop_pushes)


def _fix_arguments(name: str, module: ModuleType) -> None:
    for of_module, dotted, argument, value, variable, asked in _ARGUMENTS:
        if of_module == name and os.environ.get(variable) == asked:
            try:
                _fix(module, dotted, argument, value)
            except AttributeError:  # another version
                pass


def _fix(module: ModuleType, dotted: str, argument: str, value: Any) -> None:
    """Replaces a function by a function that calls it with `value` for the argument."""
    owner: Any = module
    *owners, name = dotted.split(".")
    for part in owners:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    names = _parameters(original)
    if argument not in names and "**" not in names:
        return

    def call(*args: Any, **kwargs: Any) -> Any:
        position = names.index(argument) if argument in names else len(args)
        if position < len(args):
            args = (*args[:position], value, *args[position + 1 :])
        elif value is not None or argument in kwargs:
            kwargs[argument] = value
        if name.startswith("set_") and value is None:
            return None  # such a function sets only this value, so there is nothing to set
        return original(*args, **kwargs)

    setattr(owner, name, functools.update_wrapper(call, original))


def _parameters(function: Function) -> list[str]:
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return ["**" if parameter.kind is parameter.VAR_KEYWORD else parameter.name for parameter in parameters]


def _stop_pushes(module: ModuleType) -> None:
    """Stops writes to the hub. Loading still works, which offline mode would also stop."""
    kind: Any = getattr(module, "HfApi", None)
    api: Any = getattr(module, "api", None)
    if kind is None:
        return
    for name in [name for name in vars(kind) if name.startswith(_HUB_WRITES) and callable(getattr(kind, name))]:
        setattr(kind, name, functools.update_wrapper(_pushing_nothing(module, name), getattr(kind, name)))
        if api is not None and hasattr(module, name):
            setattr(module, name, getattr(api, name))  # the module's functions are bound methods of `api`
    _stop_git_pushes(module)


def _pushing_nothing(module: Any, name: str) -> Function:
    def push(self: Any, *args: Any, **kwargs: Any) -> Any:
        _say_once()
        endpoint = getattr(self, "endpoint", None) or "https://huggingface.co"
        repository = kwargs.get("repo_id") or (args[0] if args and isinstance(args[0], str) else "nothing")
        repository = repository if "/" in repository else f"nobody/{repository}"  # the hub would add the user's name
        if name == "create_repo":
            return module.RepoUrl(f"{endpoint}/{repository}")
        if name not in _HUB_COMMITS:
            return None
        url = f"{endpoint}/{repository}/commit/{'0' * 40}"
        done = _commit(module, url, kwargs.get("commit_message") or "")
        return _finished(done) if kwargs.get("run_as_future") else done

    return push


def _commit(module: Any, url: str, message: str) -> Any:
    try:
        return module.CommitInfo(commit_url=url, commit_message=message, commit_description="", oid="0" * 40)
    except (AttributeError, TypeError):  # before 0.11 the result was the URL
        return url


def _finished(value: Any) -> Any:
    from concurrent.futures import Future

    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _stop_git_pushes(module: ModuleType) -> None:
    """Stops pushes by git, which huggingface_hub before version 1 also offers."""

    def stop(repository: ModuleType) -> None:
        kind: Any = getattr(repository, "Repository", None)
        for name in ("git_push", "push_to_hub"):
            if kind is not None and hasattr(kind, name):
                setattr(kind, name, lambda self, *args, **kwargs: _say_once())

    importing.after("huggingface_hub.repository", stop)


_has_said = False


def _say_once() -> None:
    global _has_said
    if not _has_said:
        _has_said = True
        print("gputune: nothing is pushed to a hub in a probe", file=sys.stderr, flush=True)
