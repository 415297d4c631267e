"""Turns a fork of the zygote into a supervisor with a child that runs the whole script, as Python would.

The supervisor is gputune's executable, as for a fresh probe. But it supervises a process that already runs, instead of
starting a command. Before the script begins, that process gets everything that a new process would get: mounts, working
folder, environment, arguments and output.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading
import types
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from typing import Any, NoReturn, Optional

from gputune._client import Reporter, end_now
from gputune._hook import entry, replaced_files
from gputune._hook.import_times import TIMES
from gputune._hook.invocation import Invocation, parse

_CLONE_NEWNS = 0x00020000
_PR_SET_PDEATHSIG = 1
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
#: `_LINUX_CAPABILITY_VERSION_3` (linux/capability.h).
_CAPABILITY_VERSION = 0x20080522


@dataclass(frozen=True)
class Start:
    """The zygote's task (`zygote.py`), and its environment before and after the imports."""

    environment: dict[bytes, bytes]
    """The variables before the imports."""
    changed: dict[bytes, bytes]
    """The variables that the imports have set."""
    task: dict[str, Any]


def die_with_parent() -> None:
    """Makes the kernel kill this process when its parent ends (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def become_supervisor(descriptors: list[int], task: dict[str, Any], start: Start) -> NoReturn:
    """Leaves the zygote's mounts, forks the process that runs the script, and becomes its supervisor."""
    try:
        link, output = descriptors
        os.setpgid(0, 0)
        if task["mounts"] is not None:
            _enter_mounts(task["mounts"])
            os.close(task["mounts"])
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            die_with_parent()
            ours.close()
            os.close(link)
            if os.getppid() == parent:  # false if the parent ended before `die_with_parent`
                _run(theirs, output, start)
            os._exit(1)
        theirs.close()
        os.dup2(link, 0)
        os.dup2(ours.fileno(), 1)
        os.dup2(output, 2)
        arguments = ["gputune: supervisor", task["adopt"], str(child)]
        os.execve(task["supervisor"], arguments, start.environment)
    except BaseException as error:
        print(f"gputune: no probe can be forked: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def _run(link: socket.socket, output: int, start: Start) -> NoReturn:
    """Waits for the order, applies it, and runs the script. Reports an error to the supervisor."""
    order = _order(link)
    if order is None:
        os._exit(1)
    try:
        invocation = parse(order["arguments"])
        if invocation.options != start.task["options"]:
            raise ValueError("other options of Python than those of the first probe")
        if os.isatty(output):
            os.dup2(output, 0)
            for stream in (sys.stdout, sys.stderr):  # as a new Python does for a terminal
                stream.reconfigure(line_buffering=True)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.setsid()
        if order["mounts"] is not None:
            _enter_mounts(order["mounts"])
        if start.task["drops_capabilities"]:
            _drop_capabilities()
            die_with_parent()  # again, as a change of credentials clears the request
        os.chdir(order["cwd"])
        _set_environment(order["env"], start)
        hook = order["env"]["PYTHONPATH"].split(os.pathsep)[0]  # the probe's own hook folder comes first
        _set_paths(hook, start.task["hook"], invocation)
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = order["arguments"]
        replaced_files.install()
        main = _new_main(invocation)
    except BaseException as error:
        link.sendall(f"{type(error).__name__}: {error}\n".encode(errors="replace"))
        os._exit(1)
    link.close()
    _execute(invocation, main)


def _order(link: socket.socket) -> Optional[dict[str, Any]]:
    received = b""
    while not received.endswith(b"\n"):
        data = link.recv(1 << 16)
        if not data:
            return None
        received += data
    order: dict[str, Any] = json.loads(received)
    return order


def _set_environment(env: dict[str, str], start: Start) -> None:
    whole = dict(start.environment)
    # Variables that the first probe's config set get gputune's own values again, as this config may not set them.
    for name, value in start.task["of_config"].items():
        if value is None:
            whole.pop(os.fsencode(name), None)
        else:
            whole[os.fsencode(name)] = os.fsencode(value)
    given = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    whole.update(given)
    # A variable that the imports have set keeps its value, unless this probe asks for another value.
    for name, value in start.changed.items():
        if name not in given or given[name] == start.environment.get(name):
            whole[name] = value
    os.environb.clear()
    os.environb.update(whole)


def _set_paths(hook: str, hook_before: str, invocation: Invocation) -> None:
    sys.path[:] = [hook if path == hook_before else path for path in sys.path]
    sys.argv[:] = invocation.argv
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.getcwd() if invocation.module is not None else os.path.dirname(os.path.realpath(invocation.argv[0])))
    importlib.invalidate_caches()
    Reporter.move_to(hook)


def _new_main(invocation: Invocation) -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    if invocation.module is None:
        path = os.path.join(os.getcwd(), invocation.argv[0])
        with open(path, "rb") as file:
            if b"\0" in file.read(1 << 12):
                raise ValueError("the program is no text")
        main.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    sys.modules["__main__"] = main
    return main


def _execute(invocation: Invocation, main: types.ModuleType) -> NoReturn:
    code = 1
    try:
        if "torch" in sys.modules:
            TIMES.install()
            entry.torch_backend()
        else:
            entry.await_torch()
        if invocation.module is not None:
            run_module: Any = runpy._run_module_as_main  # type: ignore[attr-defined]
            run_module(invocation.module)
        else:
            loader: Any = main.__loader__
            exec(loader.source_to_code(loader.get_data(main.__file__), main.__file__), main.__dict__)
        code = 0
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException as error:
        _show(error)
        is_interrupt = isinstance(error, KeyboardInterrupt)
        code = 128 + signal.SIGINT if is_interrupt else 1
    finally:
        _finish(code)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Prints an error as Python does, without the functions of this file in the traceback."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") == __name__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _finish(code: int) -> NoReturn:
    """Ends like Python, but skips the teardown of the interpreter, which costs seconds."""
    try:
        shutdown: Any = threading._shutdown  # type: ignore[attr-defined]
        shutdown()
        atexit._run_exitfuncs()
    finally:
        end_now(code)


def _enter_mounts(namespace: Any) -> None:
    """Enters a mount namespace (setns(2)), given by its file or an open descriptor."""
    descriptor = os.open(namespace, os.O_RDONLY) if isinstance(namespace, str) else namespace
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNS) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if isinstance(namespace, str):
        os.close(descriptor)


def _drop_capabilities() -> None:
    """Gives up the capabilities in the zygote's user namespace (capset(2)), as `execve` would have done."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    if libc.capset(header, none) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
