"""Where a disease is written: the script, how much it costs there, and whether it is cured."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Callable

import text
from skeleton import Parts

# What plain Python does in a millisecond on the machine of the kept results. Only sizes of jobs follow from them; what a
# disease really costs is measured (`check`).
WORDS_TOKENISED = 1600
CELLS_OF_EDIT_DISTANCE = 9000
NUMBERS_NORMALISED = 9000
NUMBERS_WRITTEN = 1900
BYTES_SAVED = 450_000
STARTS = 40  # milliseconds in which two workers are started and ended


@dataclass
class Place:
    parts: Parts
    random: Random
    number: int  # of the disease in its script
    cost_ms: float  # of it in a step
    is_cured: bool

    @property
    def each_ms(self) -> float:
        """Its share for each sample of a batch."""
        return self.cost_ms / self.parts.batch

    def guilty(self, block: str, best: str = "") -> str:
        return text.marked(block, self.number, best)

    def line(self, code: str) -> str:
        """A guilty line."""
        return f"{code}  #@{self.number}!"


Write = Callable[[Place], None]

TOKENISE = '''
def tokenise(words, vocabulary):
    """The longest known piece first."""
    pieces = []
    for word in words:
        start = 0
        while start < len(word):
            end = len(word)
            while end > start + 1 and word[start:end] not in vocabulary:
                end -= 1
            pieces.append(word[start:end])
            start = end
    return pieces
'''

WORDS = '''
def make_words(count, seed):
    letters = random.Random(seed)
    return ["".join(letters.choice("abcdefgh") for _ in range(7)) for _ in range(count)]
'''

VOCABULARY = "vocabulary = {word[i:j] for word in make_words(200, 1) for i in range(7) for j in range(i + 1, 8)}"
