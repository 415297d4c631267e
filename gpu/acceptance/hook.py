"""Scripts of many shapes under the hook on a real device, and a witness for each setting that it says it applied."""

from __future__ import annotations

import json
import pickle
import shutil
import statistics
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

from . import meters, process
from .context import SCRIPTS, Check, Context
from .results import Report

SCRIPT = SCRIPTS / "hook_case.py"
#: What a case may take: the import of torch, a window of measuring, and its end.
CASE_SECONDS = 30
#: What a case takes on an H100.
EXPECTED_SECONDS = 8
#: What a compiler may need that has nothing in its cache.
COMPILE_SECONDS = 28
Witness = dict[str, Any]
#: Says what is wrong with a witness; nothing where it is as it should be. The second witness comes from the unmodified script.
Judge = Callable[[Witness, Witness], Optional[str]]


def kernels_with(witness: Witness, words: tuple[str, ...]) -> list[str]:
    return [name for name in witness.get("kernels", []) if any(word in name.lower() for word in words)]


def named(*words: str) -> Judge:
    """A kernel that has one of these words in its name, as the other script has none."""

    def judge(seen: Witness, plain: Witness) -> Optional[str]:
        if kernels_with(seen, words) and not kernels_with(plain, words):
            return None
        return f"no kernel with {' or '.join(words)} that is not there without: {shown(seen)}"

    return judge


#: Words in the names of kernels for each number format. CUTLASS and cuDNN name the shape of a product on tensor cores: `s16816`
#: of 16-bit numbers, `s1688` of TF32. cuBLAS has `nvjet_hsh` and `nvjet_tst`.
BF16 = ("bf16", "bfloat16", "16816", "nvjet_tst")
FP16 = ("fp16", "f16f16", "_f16_", "half", "16816", "h884", "h1688", "nvjet_hsh")
TF32 = ("tf32", "s1688")
FP8 = ("e4m3", "fp8", "float8", "qqtst")


def other_kernels(seen: Witness, plain: Witness) -> Optional[str]:
    """Kernels for a smaller number format, which the other script has none of."""
    return products_in(*BF16, *FP16, *TF32)(seen, plain)


def products_in(*words: str) -> Judge:
    """Kernels of a number format that the other script does not have."""

    def judge(seen: Witness, plain: Witness) -> Optional[str]:
        new = set(kernels_with(seen, words)) - set(plain.get("kernels", []))
        return None if new else f"no other kernel with {', '.join(words[:3])}: {shown(seen)}"

    return judge


def tf32(is_on: bool) -> Judge:
    """Both switches of PyTorch as the process has them, for products and for convolutions."""

    def judge(seen: Witness, _: Witness) -> Optional[str]:
        told = seen.get("switches", {})
        wrong = [name for name in ("matmul", "cudnn") if told.get(name) is not is_on]
        return f"the switch of {' and '.join(wrong)} is {[told.get(name) for name in wrong]}" if wrong else None

    return judge


def both(*judges: Judge) -> Judge:
    """The first thing that is wrong."""

    def judge(seen: Witness, plain: Witness) -> Optional[str]:
        return next((wrong for one in judges if (wrong := one(seen, plain))), None)

    return judge


#: The kernels of attention in one piece, by words in their names: those of the flash-attention library, of cuDNN, of xFormers.
FLASH, CUDNN, EFFICIENT = ("pytorch_flash", "flash_fwd"), ("cudnn", "fort_native_sdpa"), ("fmha", "mem_eff", "attentionkernel")


def attends_by(words: tuple[str, ...]) -> Judge:
    """Attention by these kernels and no others; by none at all where it is made of products."""

    def judge(seen: Witness, plain: Witness) -> Optional[str]:
        others = [word for family in (FLASH, CUDNN, EFFICIENT) if family != words for word in family]
        if words and not kernels_with(seen, words):
            return f"no kernel with {' or '.join(words)}: {shown(seen)}"
        if kernels_with(seen, tuple(others)):
            return f"another kernel: {kernels_with(seen, tuple(others))[0]}"
        if not words and not kernels_with(plain, tuple(others)):
            return "the script as it is has no attention in one piece either, so this shows nothing"
        return None

    return judge


def shown(witness: Witness) -> str:
    return ", ".join(name[:60] for name in witness.get("kernels", [])[:4]) or "no kernel was seen"


def channels_last(seen: Witness, plain: Witness) -> Optional[str]:
    """Weights are kept so, and less has to be converted: cuDNN computes in NHWC whatever the layout is outside."""
    if seen.get("channels_last") is not True or plain.get("channels_last") is not False:
        return f"weights kept so: {seen.get('channels_last')}, {plain.get('channels_last')} in the script as it is"
    less, more = seen.get("conversions", 0), plain.get("conversions", 0)
    return None if less < more or less == more == 0 else f"{less} kernels convert the layout, and {more} without"


def twice(seen: Witness, plain: Witness) -> Optional[str]:
    """Each block runs forward twice in a step."""
    times = seen.get("forwards", 0) / max(seen.get("steps", 0), 1)
    return None if times > 1.7 else f"a block ran {times:.1f} times in a step"


def epochs(seen: Witness, _: Witness) -> Optional[str]:
    told = f"{seen.get('epochs')} epochs and {seen.get('evaluations')} evaluations"
    return None if seen.get("epochs", 0) >= 2 and seen.get("evaluations", 0) >= 1 else told


def overlap(seen: Witness, _: Witness) -> Optional[str]:
    """Loading (0.3 s) is hidden behind a step of 0.7 s."""
    seconds = seen.get("step_seconds")
    if seconds is None:
        return "no step was timed"
    return None if seconds < 0.85 else f"a step took {seconds:.2f} s: loading is not hidden"


def same_losses(seen: Witness, plain: Witness) -> Optional[str]:
    pairs = list(zip(seen.get("losses", []), plain.get("losses", [])))[:4]
    far = [pair for pair in pairs if abs(pair[0] - pair[1]) > 0.05 * max(abs(pair[1]), 0.1)]
    if not pairs:
        return "no losses to compare"
    return f"losses {far[0][0]:.3f}, not {far[0][1]:.3f}" if far else None


#: Losses that the hook has to have reported, and how far each may be from that of the other script. Labels are random, so losses
#: of two steps are further apart than this: one that was read late is seen.
REPORTED, APART = 6, 0.01


def same_reported(seen: Witness, other: Witness) -> Optional[str]:
    """The losses that the hook reported, not those that the script read itself: a graph may have overwritten them."""
    pairs = list(zip(seen.get("reported") or [], other.get("reported") or []))
    if len(pairs) < REPORTED:
        return f"{len(seen.get('reported') or [])} losses were reported, and {len(other.get('reported') or [])} without"
    wrong = [(step, pair) for step, pair in enumerate(pairs, 1) if not abs(pair[0] - pair[1]) <= APART * abs(pair[1])]
    return "loss {1[0]:.4f} in step {0}, not {1[1]:.4f}".format(*wrong[0]) if wrong else None


@dataclass(frozen=True)
class Case:
    """A script under the hook."""

    name: str
    about: str
    script: str
    target: str = ""
    setting: object = None
    judge: Optional[Judge] = None
    expected: str = "is measured"
    #: Outcomes that are right; a rejection says why, and is shown.
    outcomes: tuple[str, ...] = ("measured",)
    #: Further lines of the space, and what they are in the baseline.
    more: str = ""
    more_baseline: str = ""
    #: The case whose witness the judge compares with.
    against: str = "plain"
    #: Whether the judge looks at names of kernels.
    kernels: bool = False
    #: Whether the stand-in for a device has all that it takes.
    stands_in: bool = False
    #: True if the case only prepares another case. Its result is not judged.
    prepares: bool = False


REDUCE_OVERHEAD = dict(
    target="torch.grad_accumulation",
    setting=2,
    more='compile = { values = ["reduce-overhead"], apply = "torch.compile" }\n',
    more_baseline='compile = "reduce-overhead"\n',
)
CASES = [
    Case("plain", "a script as it is: whose kernels the others are held against", "plain", stands_in=True),
    Case("epochs", "two epochs and an evaluation, with `.to` in forked workers", "epochs", judge=epochs,
         expected="two epochs, one evaluation", stands_in=True),
    Case("slow-steps", "steps of 0.7 s beside loading of 0.3 s", "slow-steps", judge=overlap, expected="overlap",
         stands_in=True),
    Case("checkpoint", "activations computed again", "plain", "torch.checkpoint", True, twice, "each block twice",
         stands_in=True),
    Case("side-stream", "a prefetcher on a stream of its own", "side-stream", stands_in=True),
    Case("cpu-first", "a forward pass on the processor, then `.cuda()`", "cpu-first", "torch.precision", "bf16",
         products_in(*BF16), "bf16 on the GPU", kernels=True, stands_in=True),
    Case("no-workers", "loading in the training process", "no-workers", stands_in=True),
    Case("fp16", "fp16, without a scaler of the script", "plain", "torch.precision", "fp16", products_in(*FP16),
         "its kernels", kernels=True),
    Case("fp16-scaler", "fp16, with the script's scaler", "scaler", "torch.precision", "fp16", products_in(*FP16),
         "its kernels", kernels=True),
    Case("bf16", "bf16", "plain", "torch.precision", "bf16", products_in(*BF16), "its kernels", kernels=True),
    Case("bf16-weights", "weights in bf16", "plain", "torch.precision", "bf16-true", products_in(*BF16), "its kernels",
         kernels=True),
    Case("fp8", "linear layers in fp8, with torchao", "plain", "torch.precision", "fp8", products_in(*FP8),
         "its kernels, or a reason", outcomes=("measured", "rejected"), kernels=True),
    Case("fp32", "no TF32 anywhere", "plain", "torch.precision", "fp32", both(tf32(False), same_losses),
         "both switches off, the same losses", stands_in=True),
    Case("tf32", "TF32 of products and convolutions", "plain", "torch.precision", "tf32",
         both(tf32(True), products_in(*TF32)), "both switches on, its kernels", against="fp32", kernels=True),
    Case("fused", "a fused optimizer", "plain", "torch.fused_optimizer", True, named("fusedadam", "fused_adam"),
         "a fused kernel", kernels=True),
    Case("channels-last", "channels last", "plain", "torch.channels_last", True, channels_last,
         "weights in NHWC, fewer conversions", stands_in=True),
    Case("attention", "attention as the script has it", "attention"),
    Case("sdpa-flash", "flash attention", "attention", "torch.sdpa", "flash", attends_by(FLASH), "its kernel",
         against="attention", kernels=True),
    Case("sdpa-efficient", "memory-efficient attention", "attention", "torch.sdpa", "memory-efficient",
         attends_by(EFFICIENT), "its kernel", against="attention", kernels=True),
    Case("sdpa-cudnn", "cuDNN's attention", "attention", "torch.sdpa", "cudnn", attends_by(CUDNN), "its kernel",
         against="attention", kernels=True),
    Case("sdpa-math", "attention by products", "attention", "torch.sdpa", "math", attends_by(()),
         "no attention in one piece", against="attention", kernels=True),
    Case("accumulation", "accumulation without graphs: whose losses the next is held against", "plain",
         "torch.grad_accumulation", 2, lambda seen, _: same_reported(seen, seen), "its losses are reported", stands_in=True),
    Case("graphs-compile", "fills the cache of the compiler for the next", "plain", outcomes=(), prepares=True,
         judge=lambda *_: None, **REDUCE_OVERHEAD),
    Case("graphs", "accumulation under CUDA graphs", "plain", judge=same_reported, expected="the same losses reported",
         outcomes=("measured", "rejected"), against="accumulation", **REDUCE_OVERHEAD),
    Case("packed", "a batch of one row of tokens", "packed", stands_in=True),
    Case("memory", "out of memory", "memory", expected="is told as that", outcomes=("out_of_memory",)),
]  # fmt: skip


def cases() -> list[Check]:
    """One check for each case."""

    def run(case: Case) -> Callable[[Context, Report], None]:
        return lambda context, report: judge_case(context, report, case)

    def check(case: Case) -> Check:
        # A processor's memory is not to be tried.
        dry, name = case.name != "memory", f"hook-{case.name}"
        expected = COMPILE_SECONDS if case.prepares else EXPECTED_SECONDS
        return Check(name, case.about, run(case), CASE_SECONDS, least_seconds=expected, runs_dry=dry)

    return [check(case) for case in CASES]


def costs() -> list[Check]:
    """The cost of the hook. The rounds of two checks count together."""
    about = "throughput with and without the hook, interleaved"
    more = "the same, with the rounds of `hook-cost`"
    return [
        Check("hook-cost", about, partial(cost, goes_on=False), CASE_SECONDS, least_seconds=28),
        Check("hook-cost-more", more, partial(cost, goes_on=True), CASE_SECONDS, least_seconds=28),
    ]


def spec(context: Context, case: Case, folder: Path, kernels: bool = True) -> Path:
    """A spec with at most one setting, which is that of the baseline: what is not set stays as the script has it.

    Writes are allowed, as what the script has seen of itself, and what a compiler has cached, has to outlast the probe."""
    words = ["python3", str(SCRIPT), case.script, "--device", context.device, "--witness", str(folder / "witness.json")]
    # A processor that does the work of a device has little to do, so that epochs end in time, too.
    words += ["--width", "8", "--steps", "8"] if context.dry else []
    words += [] if kernels and not context.dry else ["--no-kernels"]
    value = json.dumps(case.setting)
    space, baseline = "nothing = { values = [1] }\n", "nothing = 1\n"
    if case.target:
        space, baseline = f'setting = {{ values = [{value}], apply = "{case.target}" }}\n', f"setting = {value}\n"
    seconds = 25
    text = (
        f'[step]\ncommand = {json.dumps(words)}\nadapter = "torch"\nwrites = "allow"\n[space]\n{space}{case.more}'
        f"[baseline]\n{baseline}{case.more_baseline}"
        f'[limits]\nprobe_time = "{seconds}s"\nstall_time = "{seconds}s"\nmeasure_time = "2s"\nmemory_headroom = 0\n'
    )
    path = folder / "spec.toml"
    path.write_text(text)
    return path


def witness_of(folder: Path) -> Witness:
    return read_json(folder / "witness.json")


def judge_case(context: Context, report: Report, case: Case) -> None:
    folder = context.folder(f"hook/{case.name}")
    for name in ("witness.json", REPORTED_FILE):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "probe", ignore_errors=True)
    done, probe = context.probe(spec(context, case, folder), folder / "probe", limit=context.left)
    (folder / REPORTED_FILE).write_text(json.dumps({"reported": probe.get("first_losses") or []}))
    outcome = str(probe.get("outcome", "none"))
    told = f"{outcome}: {probe.get('reason') or done.last_line()}"[:200] if outcome != "measured" else outcome
    expected = " or ".join(case.outcomes)
    seen = seen_of(folder)
    report.number(outcome=outcome, seconds=done.seconds, witness=seen, facts=probe.get("facts"))
    if case.prepares:
        report.tell("outcome", "as far as its time goes", f"{told} after {done.seconds:.0f} s")
        return
    if context.dry and outcome not in case.outcomes and not (context.card and case.stands_in):
        report.skip("outcome", expected, f"a dry run on {context.trains_on}: {told}")
        return
    if context.dry and (done.code is None or outcome in NO_TIME):
        report.skip("outcome", expected, f"a dry run on {context.trains_on} had no time for it: {told}")
        return
    report.judge("outcome", expected, told, outcome in case.outcomes)
    if outcome == "measured" and case.target:
        setting = (probe.get("config") or {}).get("setting")
        report.judge("setting", json.dumps(case.setting), json.dumps(setting), setting == case.setting)
    if case.name == "plain" and outcome == "measured":
        judge_memory(context, report, probe)
    if case.name == "memory":
        judge_snapshot(report, probe)
    if case.judge is not None and outcome == "measured":
        compare(context, report, case, seen, seen_of(context.folder(f"hook/{case.against}")))


def judge_memory(context: Context, report: Report, probe: dict[str, Any]) -> None:
    """The parts of memory: what no tensor uses, and what is outside the allocator."""
    expected = "a share from 0 to 1, and 50 MiB to 4 GiB outside the allocator"
    if context.dry:
        report.skip("parts of memory", expected, f"a dry run on {context.trains_on}")
        return
    facts, gpus = probe.get("facts") or {}, probe.get("gpus") or [{}]
    share, reserved = facts.get("memory.fragmentation"), facts.get("memory.reserved")
    own = gpus[0].get("readings", {}).get("memory_own", {}).get("value")
    if share is None or reserved is None or own is None:
        report.judge("parts of memory", expected, f"{share}, reserved {reserved}, of the process {own}", False)
        return
    outside = own - reserved
    seen = f"{share:.2f}, {outside / 2**20:.0f} MiB"
    report.judge("parts of memory", expected, seen, 0 <= share <= 1 and 50 * 2**20 <= outside <= 4 * 2**30)


def judge_snapshot(report: Report, probe: dict[str, Any]) -> None:
    """The allocator's blocks at the lack of memory, in a file."""
    expected = "a file with segments"
    try:
        content = Path(probe["memory_snapshot"]).read_bytes()
        segments = pickle.loads(content)["segments"]
        seen = f"{len(segments)} segments in {len(content) / 2**20:.1f} MiB"
    except (EOFError, KeyError, OSError, ValueError, pickle.UnpicklingError) as error:
        segments, seen = [], f"{type(error).__name__}: {error}"
    report.judge("memory snapshot", expected, seen, bool(segments))


def compare(context: Context, report: Report, case: Case, seen: Witness, other: Witness) -> None:
    """The row of the witness."""
    assert case.judge is not None
    if context.dry and (case.kernels or not context.card or not case.stands_in):
        report.skip("witness", case.expected, f"a dry run on {context.trains_on}")
    elif not seen.get("steps"):
        report.judge("witness", case.expected, "the script wrote nothing", False)
    elif not other.get("steps"):
        report.skip("witness", case.expected, f"{case.against}, which it is compared with, has not run")
    elif case.kernels and not seen.get("kernels") and not other.get("kernels"):
        # As where CUPTI is not permitted: that is no fault of the hook.
        report.skip("witness", case.expected, "the profiler of PyTorch sees no kernel at all here")
    else:
        wrong = case.judge(seen, other)
        right = shown(seen) if case.kernels else case.expected
        report.judge("witness", case.expected, wrong or right, wrong is None)


#: Outcomes that say of a dry run that the processor is slow or busy.
NO_TIME = ("timed_out", "stalled", "interrupted", "disturbed")
REPORTED_FILE = "reported.json"


def seen_of(folder: Path) -> Witness:
    """What the script saw of itself, and the losses that the hook reported of it."""
    return {**witness_of(folder), **read_json(folder / REPORTED_FILE)}


#: A step of a script of its own may take so much longer under the hook.
COST = 0.01


def cost(context: Context, report: Report, goes_on: bool) -> None:
    """The script's own rate, alone and under the hook, in turn, as often as there is time for.

    The rounds of two checks count together, as half a minute is too short for three."""
    folder = context.folder("hook/cost")
    path = folder / "differences.json"
    differences = read_json(path).get("differences", []) if goes_on else []
    for pair in rounds(context, "plain", folder, 0):
        differences.append(pair[1] / pair[0] - 1)
        path.write_text(json.dumps({"differences": differences}))
        report.number(differences=differences)
    expected = f"the whole 95 % interval within ± {COST:.0%}"
    if len(differences) < meters.FEWEST_ROUNDS:
        report.skip("time of a step", expected, f"{len(differences)} rounds so far, not {meters.FEWEST_ROUNDS}")
        return
    seen, outcome = meters.verdict(differences, COST)
    report.add("time of a step", expected, seen, outcome)


def rounds(context: Context, script: str, folder: Path, reserve: float) -> Iterator[tuple[float, float]]:
    """Seconds of a step alone and under the hook, until no more than `reserve` seconds of the check are left."""
    case, longest, number = Case("cost", "", script), 0.0, 0
    while context.left - reserve > 1.2 * longest + 1:
        begun, number = context.left, number + 1
        seconds: dict[bool, object] = {}
        for is_hooked in (number % 2 == 0, number % 2 == 1):
            (folder / "witness.json").unlink(missing_ok=True)
            limit = max(context.left - reserve, 1.0)
            if is_hooked:
                shutil.rmtree(folder / "probe", ignore_errors=True)
                context.probe(spec(context, case, folder, kernels=False), folder / "probe", limit=limit)
            else:
                words = [script, "--device", context.device, "--no-kernels", "--seconds", "3"]
                alone = [sys.executable, str(SCRIPT), *words, "--witness", str(folder / "witness.json")]
                process.run(alone, limit, env=context.environment())
            seconds[is_hooked] = witness_of(folder).get("step_seconds")
        longest = max(longest, begun - context.left)
        if isinstance(seconds[False], float) and isinstance(seconds[True], float):
            yield seconds[False], seconds[True]


#: The widest half of an interval, as a share of a step, that can show the cost of the hook.
NOISIEST = 0.02
#: Of the check, for what follows.
LOAD_RESERVE = 65


def observer(context: Context, report: Report) -> None:
    """What observing costs steps of about a millisecond, and then a load that has no hook."""
    folder = context.folder("hook/small")
    pairs: list[tuple[float, float]] = []
    for pair in rounds(context, "small", folder, LOAD_RESERVE):
        pairs.append(pair)
        report.number(small_steps=pairs)
    judge_small_steps(report, pairs)
    if not context.dry:
        meters.observer(context, report)


def judge_small_steps(report: Report, pairs: list[tuple[float, float]]) -> None:
    """By the mean share that a step takes longer. Half the width of its 95 % interval is the noise."""
    expected = f"at most {meters.COST:.1%} more, plus the noise of at most {NOISIEST:.0%}"
    if len(pairs) < meters.FEWEST_ROUNDS:
        report.skip("small steps", expected, f"{len(pairs)} rounds ended well, not {meters.FEWEST_ROUNDS}")
        return
    mean, half = meters.interval([hooked / alone - 1 for alone, hooked in pairs])
    alone = 1e3 * statistics.mean(alone for alone, _ in pairs)
    seen = f"{mean:+.2%} ± {half:.2%} of a step of {alone:.2f} ms, in {len(pairs)} rounds"
    if half > NOISIEST and mean - half <= meters.COST:
        report.skip("small steps", expected, f"too noisy ({seen})")
    else:
        report.judge("small steps", expected, seen, mean - half <= meters.COST)


def read_json(path: Path) -> Witness:
    try:
        content = json.loads(path.read_text())
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}
