"""Says which Python this is, which frameworks it has, and which files of the project a script imports.

Nothing of the project is run: its files are parsed. Reads a JSON object from its argument and prints one.
"""

import sys

if sys.path and sys.path[0] in ("", "."):
    del sys.path[0]  # the working folder, whose files may have the names of the modules below

import ast
import importlib.machinery
import json
import os
import re
import sysconfig

MOST_FILES = 5000
LARGEST = 4 * 1024 * 1024
#: Ways to run or import code that a static look cannot see.
DYNAMIC = {"import_module", "__import__", "exec", "execfile", "run_path", "run_module", "spec_from_file_location", "instantiate"}

ASKED = json.loads(sys.argv[1])
INSTALLED = [
    os.path.realpath(path) + os.sep
    for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    if path
]


def is_installed(path):
    """True if a file belongs to the interpreter or to a package, not to the project."""
    real = os.path.realpath(path)
    parts = real.split(os.sep)
    return "site-packages" in parts or "dist-packages" in parts or any(real.startswith(place) for place in INSTALLED)


class Project:
    """The files that scripts import."""

    def __init__(self, places):
        self.places = places
        self.files = {}
        self.is_dynamic = False
        self.tops = {}

    def add(self, path):
        waiting = [os.path.abspath(path)]
        while waiting and len(self.files) < MOST_FILES:
            path = waiting.pop()
            if path in self.files or not os.path.isfile(path) or is_installed(path):
                continue
            self.files[path] = True
            if path.endswith(".py") and os.path.getsize(path) <= LARGEST:
                waiting.extend(self.imports(path))

    def imports(self, path):
        try:
            with open(path, "rb") as source:
                tree = ast.parse(source.read(), path)
        except (OSError, SyntaxError, ValueError, RecursionError):
            return []
        found = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found += self.module(alias.name.split("."))
            elif isinstance(node, ast.ImportFrom):
                parts = node.module.split(".") if node.module else []
                base = None
                if node.level:
                    base = os.path.dirname(path)
                    for _ in range(node.level - 1):
                        base = os.path.dirname(base)
                found += self.module(parts, base)
                for alias in node.names:
                    found += self.module(parts + [alias.name], base)
            elif isinstance(node, ast.Call):
                name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
                self.is_dynamic = self.is_dynamic or name in DYNAMIC
        return found

    def module(self, parts, base=None):
        """The files that an import runs: the module's file, and the files of the packages around it."""
        if not parts:
            return [os.path.join(base, "__init__.py")] if base else []
        place = base or self.top(parts[0])
        if place is None:
            return []
        found = []
        for part in parts:
            place = os.path.join(place, part)
            found += [place + ".py", os.path.join(place, "__init__.py")]
        return found

    def top(self, name):
        """The folder that a top-level name is imported from, if it is the project's."""
        if name not in self.tops:
            self.tops[name] = self.find_top(name)
        return self.tops[name]

    def find_top(self, name):
        for place in self.places:
            path = os.path.join(place, name)
            if os.path.isfile(path + ".py") or os.path.isdir(path):
                return None if is_installed(path) else place
        if name in getattr(sys, "stdlib_module_names", ()) or name in sys.builtin_module_names:
            return None
        for finder in sys.meta_path:  # packages that are installed as links to where they are written
            try:
                spec = finder.find_spec(name, None)
            except Exception:
                continue
            if spec is None:
                continue
            origin = spec.origin if spec.origin and os.path.isfile(spec.origin) else None
            folders = list(spec.submodule_search_locations or [])
            path = folders[0] if folders else origin
            return None if path is None or is_installed(path) else os.path.dirname(path)
        return None


def all_of(folder):
    """All Python files below a folder, without hidden ones and other environments."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in ("node_modules", "__pycache__", "gputune-out")
            and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        )
        found += [os.path.join(place, name) for name in sorted(names) if name.endswith(".py")]
        if len(found) > MOST_FILES:
            break
    return found


def versions(names):
    try:
        from importlib.metadata import PackageNotFoundError, version
    except ImportError:
        return {}
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            told = told_by_itself(name)
            if told:
                found[name] = told
        except Exception:
            pass
    return found


def told_by_itself(name):
    """The version in the `version.py` of a package without metadata, as Linux distributions ship them."""
    try:
        spec = importlib.machinery.PathFinder.find_spec(name.replace("-", "_"))
        folder = list(spec.submodule_search_locations)[0]
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as source:
            return re.search(r"""__version__\s*(?::[^=]*)?=\s*['"]([^'"]+)""", source.read()).group(1)
    except Exception:
        return None


def main():
    cwd = ASKED["cwd"]
    roots = [os.path.join(cwd, path) for path in ASKED["roots"]]
    places = [os.path.dirname(root) for root in roots if root.endswith(".py")]
    for place in places + [cwd] + [os.path.join(cwd, path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]:
        if place not in places:
            places.append(place)
    places += [path for path in sys.path if os.path.isdir(path) and not is_installed(os.path.join(path, "x")) and path not in places]
    project = Project(places)
    for root in roots:
        project.add(root)
    for name in ASKED["modules"]:
        for path in project.module(name.split(".")) + project.module(name.split(".") + ["__main__"]):
            project.add(path)
    if project.is_dynamic and project.files:
        for folder in sorted({os.path.dirname(path) for path in roots if path.endswith(".py")}):
            for path in all_of(folder):
                project.add(path)
    json.dump(
        {
            "executable": sys.executable or "",
            "version": sys.version.split()[0],
            "frameworks": versions(ASKED["frameworks"]),
            "files": sorted(project.files),
        },
        sys.stdout,
    )


main()
