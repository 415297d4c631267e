"""Starts the zygote; Python puts this file's folder first on the path, where it stands a second time."""

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]

from gputune._hook import zygote  # noqa: E402

zygote.main()
