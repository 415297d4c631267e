"""A job: a kind and a seed make a script, its truth, and the script with some of its diseases cured. Always the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Optional, Union

from kinds import BY_NAME, KINDS, MIXTURES, Kind, Mixture
from place import Place
from skeleton import Parts
from text import Marked
from truth import HEALTHY, SEEN, SHARED, Disease, Truth

# About how long a script is measured, as it is: enough for several evaluations. Steps follow from it, and are fixed.
MEASURED_MS = 3500
PERIOD = 20  # a multiple of everything that happens every few steps
FIRST_SEED = 1  # of those that rules are made on
FIRST_JUDGING_SEED = 1001  # of those that are kept out, of both halves

TITLES = ("Trains a classifier.", "A small classifier, trained from scratch.", "Trains and logs the loss.", "Baseline for the ablation.")


@dataclass(frozen=True)
class Variant:
    """A script: as it is, with diseases cured (their numbers), or with the setting that a search could find."""

    cured: frozenset[int] = field(default_factory=frozenset)
    is_set: bool = False
    has_more_workers: bool = False  # than there are, where that must not help
    is_replayed: bool = False  # the first batches again and again: of a healthy job, which has to be no faster

    @property
    def name(self) -> str:
        if self.is_set:
            return "set"
        if self.has_more_workers:
            return "more"
        if self.is_replayed:
            return "replayed"
        return "cured" + "".join(str(number) for number in sorted(self.cured)) if self.cured else "sick"


SICK = Variant()
SET = Variant(is_set=True)
MORE = Variant(has_more_workers=True)
REPLAYED = Variant(is_replayed=True)


def cured(*numbers: int) -> Variant:
    return Variant(frozenset(numbers))


class Job:
    """One script that could be anybody's, of which everything is known."""

    def __init__(self, kind: Union[Kind, Mixture], seed: int) -> None:
        self.kind, self.seed = kind, seed
        random = Random(f"{kind.name}/{seed}")
        self.kinds = (kind,) if isinstance(kind, Kind) else (BY_NAME[kind.first], BY_NAME[kind.second])
        self.factors = kind.factors if isinstance(kind, Mixture) else (random.uniform(*kind.factor),)
        self.model = random.choice(self.kinds[0].models)
        # A mixture has the loader of the one that needs workers.
        self.workers = random.choice(max(self.kinds, key=lambda of: min(of.workers)).workers)
        self.optimizer, self.lr = random.choice((("SGD", "1e-3"), ("SGD", "1e-2"), ("AdamW", "3e-4")))
        self.title = random.choice(TITLES)
        self.dataset = random.choice(("Samples", "TrainingSet", "Corpus", "Recordings"))
        self.has_main = random.random() < 0.7

    @property
    def name(self) -> str:
        return f"{self.kind.name}-{self.seed}"

    @property
    def half(self) -> str:
        return self.kind.half

    @property
    def ranks(self) -> int:
        return self.kinds[0].ranks

    @property
    def is_healthy(self) -> bool:
        return self.kinds[0].branch == HEALTHY

    def parts(self, variant: Variant = SICK) -> Parts:
        parts = Parts(self.model, self.seed, self.model.batch, self.workers, dataset=self.dataset, about=self.title, lr=self.lr,
                      optimizer=self.optimizer, has_main=self.has_main)
        for number, (kind, factor) in enumerate(zip(self.kinds, self.factors)):
            random = Random(f"{kind.name}/{self.seed}/{number}")
            kind.write(Place(parts, random, number, factor * self.model.about_ms, number in variant.cured))
        if variant.is_set and self.setting:
            set_parameter(parts, *self.setting)
        if variant.is_replayed:
            parts.imports.add("itertools")
            parts.setup.insert(0, "loader = list(itertools.islice(loader, 4)) * 100")
        if variant.has_more_workers:
            parts.workers *= 2
        return parts

    def script(self, variant: Variant = SICK) -> Marked:
        return self.parts(variant).script()

    def batch(self, variant: Variant = SICK) -> int:
        return self.parts(variant).batch

    @property
    def setting(self) -> Optional[tuple[str, int]]:
        return self.kinds[0].setting if len(self.kinds) == 1 else None

    @property
    def variants(self) -> list[Variant]:
        """What is measured to know what a cure is worth."""
        if self.is_healthy:
            return [SICK, REPLAYED]
        more = [SET] if self.setting else []
        if len(self.kinds) == 2:
            more = [cured(1), cured(0, 1)]
        elif self.kinds[0].scaling == SHARED:
            more = [MORE]
        return [SICK, cured(0), *more]

    def truth(self) -> Truth:
        lines = self.script().lines
        diseases = tuple(self._disease(number, kind, lines.get(number, ())) for number, kind in enumerate(self.kinds))
        return Truth(self.name, self.half, self.seed, self.ranks, self.workers, self.batch(), () if self.is_healthy else diseases)

    def _disease(self, number: int, kind: Kind, lines: tuple[int, ...]) -> Disease:
        setting = dict([kind.setting]) if kind.setting else {}
        return Disease(kind.name, kind.branch, kind.cause, kind.remedy, kind.least, kind.also_branches, kind.also, kind.scaling,
                       setting, lines)

    def period(self) -> int:
        """Steps after which everything has happened equally often."""
        return max(PERIOD, self.parts().steps_per_epoch)

    def steps(self) -> int:
        """How many are run, of every variant, the first period being warm-up."""
        sick_ms = self.model.about_ms * (1 + sum(self.factors))
        return self.period() * (1 + max(3, round(MEASURED_MS / sick_ms / self.period())))


def set_parameter(parts: Parts, name: str, value: int) -> None:
    if name == "workers":
        parts.workers = value
    elif name == "batch":
        parts.batch = value
    else:
        parts.is_persistent = bool(value)


def jobs(half: Optional[str] = None, seeds: range = range(1, 2), only: Optional[list[str]] = None) -> list[Job]:
    """The jobs of a half, or of both; `only` takes those whose kinds begin so."""
    chosen = [kind for kind in (*KINDS, *MIXTURES) if half in (None, kind.half)]
    chosen = [kind for kind in chosen if not only or any(kind.name.startswith(begin) for begin in only)]
    return [Job(kind, seed) for seed in seeds for kind in chosen]


def seeds_of(half: Optional[str], count: int, first: Optional[int] = None) -> range:
    """Rules are made with seeds that no judging uses: as soon as the half that is kept out is run, other seeds are taken."""
    begin = first if first is not None else FIRST_SEED if half == SEEN else FIRST_JUDGING_SEED
    return range(begin, begin + count)
