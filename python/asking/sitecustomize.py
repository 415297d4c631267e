"""A script that is asked for its help changes no file: what it would write is refused, as on a disk that is read-only.

Folders that gputune names in `GPUTUNE_ASKING` may be written, temporary files among them. Ends with the import of the
`sitecustomize` that this one hides.
"""

import errno
import os
import sys

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Python's audit events that change a file or folder, with the places of their paths (its documentation, "Audit events").
_CHANGES = {
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.link": (1,),
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.removexattr": (0,),
    "os.rename": (0, 1),
    "os.rmdir": (0,),
    "os.setxattr": (0,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.utime": (0,),
    "shutil.rmtree": (0,),
    "sqlite3.connect": (0,),
}
_ALLOWED = [os.path.realpath(folder) for folder in os.environ.get("GPUTUNE_ASKING", "").split(":") if folder]
_ALLOWED += ["/dev", "/proc"]


def _is_allowed(path):
    if isinstance(path, int):  # a descriptor that is open already
        return True
    real = os.path.realpath(os.fsdecode(path))
    return any(real == folder or real.startswith(folder + os.sep) for folder in _ALLOWED)


def _refuse_writes(event, arguments):
    if event == "open":
        path, _, flags = arguments
        paths = (path,) if isinstance(flags, int) and flags & _WRITES else ()
    else:
        paths = [arguments[at] for at in _CHANGES.get(event, ()) if at < len(arguments)]
    for path in paths:
        if path != ":memory:" and not _is_allowed(path):
            raise OSError(errno.EROFS, "a script that is asked for its help writes nothing", os.fsdecode(path))


def _run_hidden():
    here = os.path.dirname(os.path.abspath(__file__))
    ours = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) == here]
    this = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [entry for entry in sys.path if entry not in ours]
    try:
        import sitecustomize  # noqa: F401  (the user's own, or the distribution's)
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.path[:0] = ours
        if this is not None:
            sys.modules.setdefault("sitecustomize", this)


_run_hidden()
if hasattr(sys, "addaudithook"):  # Python 3.8
    sys.addaudithook(_refuse_writes)
