"""Redirects the paths given to libraries that write files in C++ or Rust to the scratch layer."""

from __future__ import annotations

import functools
import os
from types import BuiltinFunctionType, MethodType, ModuleType
from typing import Any, Callable, NamedTuple, Optional

from gputune._hook import importing
from gputune._hook.scratch_layer import ScratchLayer

Function = Callable[..., Any]

#: The use of the path by a call: it reads the file, writes it anew, changes it, or adds files to the folder.
READ, WRITE, CHANGE, FOLDER = "read", "write", "change", "folder"


class Call(NamedTuple):
    """A function or a method of a module that takes a path."""

    module: str
    name: str
    """Name within the module, with a dot between class and method."""
    position: int
    """Position of the path among the arguments, counting `self`."""
    keyword: str
    access: str = WRITE
    mode: Optional[int] = None
    """Position of the argument `mode`, which has the values of `open`."""


#: Calls that pass the path to native code instead of Python's `open`, found in the sources of the libraries. The hook
#: replaces each call after the import of its module.
CALLS = (
    Call("torch", "save", 1, "f"),
    Call("torch", "load", 0, "f", READ),
    Call("torch", "from_file", 0, "filename", CHANGE),
    Call("torch.jit", "save", 1, "f"),
    Call("torch.jit", "load", 0, "f", READ),
    Call("torch.jit._script", "RecursiveScriptModule.save", 1, "f"),
    Call("torch.storage", "UntypedStorage.from_file", 0, "filename", CHANGE),
    Call("torch.autograd.profiler", "profile.export_chrome_trace", 1, "path"),
    Call("torch.autograd.profiler", "profile.export_stacks", 1, "path"),
    Call("torch.profiler.profiler", "_KinetoProfile.export_chrome_trace", 1, "path"),
    Call("torchvision.io.image", "write_file", 0, "filename"),
    Call("torchvision.io.image", "write_png", 1, "filename"),
    Call("torchvision.io.image", "write_jpeg", 1, "filename"),
    Call("torchvision.io.image", "read_file", 0, "path", READ),
    Call("safetensors", "serialize_file", 1, "filename"),
    Call("safetensors", "safe_open", 0, "filename", READ),
    Call("tokenizers", "Tokenizer.save", 1, "path"),
    Call("tokenizers", "Tokenizer.from_file", 0, "path", READ),
    Call("h5py", "File.__init__", 1, "name", READ, 2),
    Call("pyarrow", "OSFile", 0, "path", READ, 1),
    Call("pyarrow", "memory_map", 0, "path", READ, 1),
    Call("pyarrow", "output_stream", 0, "source"),
    Call("pyarrow", "input_stream", 0, "source", READ),
    Call("pyarrow.parquet", "write_table", 1, "where"),
    Call("pyarrow.parquet", "read_table", 0, "source", READ),
    Call("pyarrow.parquet", "ParquetWriter.__init__", 1, "where"),
    Call("pyarrow.parquet", "ParquetFile.__init__", 1, "source", READ),
    Call("pyarrow.feather", "write_feather", 1, "dest"),
    Call("pyarrow.feather", "read_table", 0, "source", READ),
    Call("pyarrow.csv", "write_csv", 1, "output_file"),
    Call("sqlite3", "connect", 0, "database", CHANGE),
    Call("sqlite3.dbapi2", "connect", 0, "database", CHANGE),
    Call("cv2", "imwrite", 0, "filename"),
    Call("cv2", "imread", 0, "filename", READ),
    Call("cv2", "VideoWriter", 0, "filename"),
    Call("soundfile", "SoundFile.__init__", 1, "file", READ, 2),
    Call("tensorboard.summary.writer.event_file_writer", "EventFileWriter.__init__", 1, "logdir", FOLDER),
    Call("torch.distributed", "FileStore", 0, "file_name", CHANGE),
    Call("torch.distributed.rendezvous", "FileStore", 0, "file_name", CHANGE),
)


class NativeWriters:
    """Replaces the calls once their modules are loaded."""

    def __init__(self, layer: ScratchLayer) -> None:
        self._layer = layer

    def install(self) -> None:
        modules = dict.fromkeys(call.module for call in CALLS)
        for name in modules:
            importing.after(name, functools.partial(self._replace_all, [call for call in CALLS if call.module == name]))

    def _replace_all(self, calls: list[Call], module: ModuleType) -> None:
        for call in calls:
            try:
                self._replace(call, module)
            except (AttributeError, TypeError):  # another version of the library, or a class that cannot be changed
                pass

    def _replace(self, call: Call, module: ModuleType) -> None:
        owner: Any = module
        *owners, name = call.name.split(".")
        for part in owners:
            owner = getattr(owner, part)
        original = getattr(owner, name)
        is_bound = isinstance(original, (BuiltinFunctionType, MethodType)) or isinstance(vars(owner).get(name), staticmethod)
        is_static = isinstance(owner, type) and is_bound
        replaced = self._class(call, original) if isinstance(original, type) else self._function(call, original)
        setattr(owner, name, staticmethod(replaced) if is_static else replaced)

    def _function(self, call: Call, original: Function) -> Function:
        def function(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = self._redirected(call, args, kwargs)
            return original(*args, **kwargs)

        return functools.update_wrapper(function, original)

    def _class(self, call: Call, original: type) -> type:
        """A class whose calls create instances of the original. It is no subclass, as the original may be final."""
        redirected = self._redirected

        class Kind(type):
            def __call__(cls, *args: Any, **kwargs: Any) -> Any:
                args, kwargs = redirected(call, args, kwargs)
                return original(*args, **kwargs)

            def __instancecheck__(cls, instance: Any) -> bool:
                return isinstance(instance, original)

            def __subclasscheck__(cls, subclass: type) -> bool:
                return issubclass(subclass, original)

            def __getattr__(cls, name: str) -> Any:
                return getattr(original, name)

        names = {"__doc__": original.__doc__, "__module__": original.__module__, "__qualname__": original.__qualname__}
        return Kind(original.__name__, (), names)

    def _redirected(self, call: Call, args: Any, kwargs: Any) -> tuple[Any, Any]:
        path = args[call.position] if len(args) > call.position else kwargs.get(call.keyword)
        if not isinstance(path, (str, bytes, os.PathLike)) or not _names_a_file(path):
            return args, kwargs
        found = self._place(path, _access(call, args, kwargs))
        if found is path:
            return args, kwargs
        found = type(path)(found) if isinstance(path, os.PathLike) else found
        found = os.fsencode(found) if isinstance(path, bytes) else found
        if len(args) > call.position:
            return (*args[: call.position], found, *args[call.position + 1 :]), kwargs
        return args, {**kwargs, call.keyword: found}

    def _place(self, path: Any, access: str) -> Any:
        if access == READ:
            return self._layer.reading(path)
        if access == FOLDER:
            return self._layer.folder(path)
        return self._layer.writing(path, keeps=access == CHANGE)


def _names_a_file(path: Any) -> bool:
    text = os.fsdecode(path)
    return bool(text) and "://" not in text and not text.startswith((":memory:", "file:"))


def _access(call: Call, args: Any, kwargs: Any) -> str:
    if call.mode is None:
        return call.access
    mode = args[call.mode] if len(args) > call.mode else kwargs.get("mode", "r")
    if not isinstance(mode, str) or mode in ("r", "rb"):
        return READ
    return WRITE if mode[0] == "w" and "+" not in mode and "-" not in mode else CHANGE

