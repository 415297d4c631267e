"""Applies the edits in the file `next` to a script, by place and code, as a user would. Prints the new script.

Arguments: the file `next`, the script.
"""

import ast
import re
import sys


def edits(text):
    """The edits in a text: for each its place, its description, and its lines of code."""
    found = []
    for line in text.split("\n# ")[2:]:
        if line.startswith("    "):
            found[-1][2].append(line[4:].rstrip())
            continue
        pattern = r"(?:(\S+\.py:\d+): )?(.*?\)?(?:`)?[^:(]*)(?:: (.*?))?(?: \(instead of .*\))?:?\n?"
        place, what, code = re.fullmatch(pattern, line).groups()
        found.append((place, what, [code] if code else []))
    return found


def set_arguments(tree, line, name, table, code):
    """Sets arguments of the call of `name` at a line. If the call passes `**table`, removes these names from the table."""
    wanted = ast.parse(f"f({code})", mode="eval").body.keywords
    names = [keyword.arg for keyword in wanted]
    (call,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno == line and ast.unparse(node.func) == name
    ]
    call.keywords = [keyword for keyword in call.keywords if keyword.arg not in names]
    for keyword in call.keywords:
        if keyword.arg is None and table == ast.unparse(keyword.value):
            text = f"{{key: value for key, value in {table}.items() if key not in {names}}}"
            keyword.value = ast.parse(text, mode="eval").body
    call.keywords += wanted


def main():
    text, script = open(sys.argv[1]).read(), open(sys.argv[2]).read()
    tree = ast.parse(script)
    for place, what, lines in edits(text):
        call = re.fullmatch(r"in (\S+)\(\.\.\.\)(?:, and out of (\w+))?", what)
        assert call and place, (place, what, lines)
        set_arguments(tree, int(place.rpartition(":")[2]), call[1], call[2], lines[0])
    print(ast.unparse(tree))


if __name__ == "__main__":
    main()
