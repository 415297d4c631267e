"""Parses the command line of Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Invocation:
    """The program that Python runs, with its options."""

    options: list[str]
    module: Optional[str]
    argv: list[str]


def parse(arguments: list[str]) -> Invocation:
    """Parses Python's command line (Python's documentation, "Command line and environment").

    Raises `ValueError` if the program is neither a file nor a module, such as code after `-c`.
    """
    at = 1
    while at < len(arguments):
        word = arguments[at]
        if word.startswith("--"):
            at += 2 if word == "--check-hash-based-pycs" else 1
            continue
        if not word.startswith("-"):
            return Invocation(arguments[1:at], None, arguments[at:])
        letters = word[1:]  # flags such as `-uO`; c, m, W and X take the rest of the word or the next word
        kind = next((letter for letter in letters if letter in "cmWX"), None)
        if not letters or kind == "c":
            raise ValueError("the program is no file and no module")
        rest = letters.partition(kind)[2] if kind is not None else ""
        if kind == "m":
            options = arguments[1:at] + ([word[: len(word) - len(rest) - 1]] if word[:2] != "-m" else [])
            module, behind = (rest, at + 1) if rest else (arguments[at + 1], at + 2)
            return Invocation(options, module, ["-m", *arguments[behind:]])
        at += 2 if kind is not None and not rest else 1
    raise ValueError("the program is no file and no module")
