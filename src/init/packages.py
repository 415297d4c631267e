"""Prints the modules that installed packages import at their top level. Imports none of them."""

import importlib.util
import json
import os
import re
import sys

FILES, BYTES = 400, 1 << 20
IMPORT = re.compile(r"^(?:import|from)\s+([A-Za-z_]\w*)", re.MULTILINE)
# Folders of copies of other packages, and of tests.
OTHERS = re.compile(r"^(_.*|extern.*|vendor.*|.*compat.*|tests?)$")


def files_of(name):
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        return
    if spec is None:
        return
    folders = list(spec.submodule_search_locations or [])
    if not folders and spec.origin:
        yield spec.origin
    for folder in folders:
        for path, inner, names in os.walk(folder):
            inner[:] = sorted(one for one in inner if not OTHERS.match(one))
            yield from (os.path.join(path, one) for one in sorted(names) if one.endswith(".py"))


def main():
    sys.path.insert(0, os.getcwd())
    # The callbacks of gputune's own package import every framework.
    found, own = set(), set(json.loads(sys.argv[1])) - set(getattr(sys, "stdlib_module_names", ())) - {"gputune"}
    for name in sorted(own):
        for number, file in enumerate(files_of(name)):
            if number == FILES:
                break
            try:
                with open(file, encoding="utf-8", errors="replace") as text:
                    found.update(IMPORT.findall(text.read(BYTES)))
            except OSError:
                continue
    print("\n" + json.dumps(sorted(found)))


main()
