"""Runs the code cells of a notebook in one namespace, without Jupyter, and prints their output: `notebook.py FILE`."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from types import ModuleType

notebook = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
sys.modules["ipykernel"] = ModuleType("ipykernel")  # gputune then rewrites its line of progress, as in Jupyter
namespace: dict[str, object] = {"__name__": "__main__"}
number = 0
for cell in notebook["cells"]:
    if cell["cell_type"] != "code":
        continue
    number += 1
    code = ast.parse("".join(cell["source"]))
    last = code.body.pop() if isinstance(code.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        exec(compile(code, f"cell {number}", "exec"), namespace)
        shown = None if last is None else eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace)
    # After a carriage return, a line of progress replaces the earlier text of its line.
    for line in printed.getvalue().split("\n"):
        print(line.rsplit("\r", 1)[-1])
    if shown is not None:
        print(shown._repr_html_() if hasattr(shown, "_repr_html_") else repr(shown))
