"""Scripts of many shapes under the hook on a real device, and a witness for each setting that it says it applied."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional

from . import process
from .context import SCRIPTS, Check, Context
from .results import Report

SCRIPT = SCRIPTS / "hook_case.py"
#: What a case may take: the import of torch, a window of measuring, and its end.
CASE_SECONDS = 30
#: What a case is expected to take on a machine with a GPU.
EXPECTED_SECONDS = 8
Witness = dict[str, Any]
#: Says what is wrong with a witness; nothing where it is as it should be. The second is that of the script as it is.
Judge = Callable[[Witness, Witness], Optional[str]]


def named(*words: str) -> Judge:
    """A kernel that has one of these words in its name, as the plain script has none."""

    def judge(seen: Witness, plain: Witness) -> Optional[str]:
        def found(witness: Witness) -> list[str]:
            return [name for name in witness.get("kernels", []) if any(word in name.lower() for word in words)]

        return None if found(seen) and not found(plain) else f"no kernel with {' or '.join(words)}: {shown(seen)}"

    return judge


def other_kernels(seen: Witness, plain: Witness) -> Optional[str]:
    """Products by other kernels than those of the plain script."""
    new = set(seen.get("kernels", [])) - set(plain.get("kernels", []))
    return None if new else f"the same kernels as without: {shown(seen)}"


def shown(witness: Witness) -> str:
    return ", ".join(name[:60] for name in witness.get("kernels", [])[:4]) or "no kernel was seen"


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
    return None if seconds is None or seconds < 0.85 else f"a step took {seconds:.2f} s: loading is not hidden"


def same_losses(seen: Witness, plain: Witness) -> Optional[str]:
    pairs = list(zip(seen.get("losses", []), plain.get("losses", [])))[:4]
    far = [pair for pair in pairs if abs(pair[0] - pair[1]) > 0.05 * max(abs(pair[1]), 0.1)]
    return f"losses {far[0][0]:.3f}, not {far[0][1]:.3f}" if far else None


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
    more: str = ""


CASES = [
    Case("plain", "a script as it is: whose kernels the others are held against", "plain"),
    Case("epochs", "two epochs and an evaluation, with `.to` in forked workers", "epochs", judge=epochs),
    Case("side-stream", "a prefetcher on a stream of its own", "side-stream"),
    Case("cpu-first", "a forward pass on the processor, then `.cuda()`", "cpu-first", "torch.precision", "bf16",
         other_kernels, "bf16 on the GPU"),
    Case("slow-steps", "steps of 0.7 s beside loading of 0.3 s", "slow-steps", judge=overlap, expected="overlap"),
    Case("no-workers", "loading in the training process", "no-workers"),
    Case("fp16", "fp16, without a scaler of the script", "plain", "torch.precision", "fp16", other_kernels,
         "its kernels"),
    Case("fp16-scaler", "fp16, with the script's scaler", "scaler", "torch.precision", "fp16", other_kernels,
         "its kernels"),
    Case("bf16", "bf16", "plain", "torch.precision", "bf16", other_kernels, "its kernels"),
    Case("tf32", "TF32 of products and convolutions", "plain", "torch.precision", "tf32", other_kernels, "its kernels"),
    Case("fp32", "neither", "plain", "torch.precision", "fp32", same_losses, "the same losses"),
    Case("fused", "a fused optimizer", "plain", "torch.fused_optimizer", True, named("fused"), "a fused kernel"),
    Case("channels-last", "channels last", "plain", "torch.channels_last", True, named("nhwc"), "kernels for NHWC"),
    Case("sdpa-flash", "flash attention", "attention", "torch.sdpa", "flash", named("flash"), "its kernel",
         ("measured", "rejected")),
    Case("sdpa-efficient", "memory-efficient attention", "attention", "torch.sdpa", "memory-efficient",
         named("fmha", "mem_eff", "cutlassf"), "its kernel"),
    Case("sdpa-math", "attention by products", "attention", "torch.sdpa", "math", named("softmax"), "its kernels"),
    Case("checkpoint", "activations computed again", "plain", "torch.checkpoint", True, twice, "each block twice"),
    Case("graphs", "accumulation under CUDA graphs", "plain", "torch.grad_accumulation", 2, same_losses,
         "the same losses", ("measured", "rejected"),
         'compile = { values = ["reduce-overhead"], apply = "torch.compile" }\n'),
    Case("packed", "a batch of one row of tokens", "packed"),
    Case("memory", "out of memory", "memory", expected="is told as that", outcomes=("out_of_memory",)),
]  # fmt: skip


def checks() -> list[Check]:
    """One check for each case, and that of the cost."""

    def run(case: Case) -> Callable[[Context, Report], None]:
        return lambda context, report: judge_case(context, report, case)

    def check(case: Case) -> Check:
        # A processor's memory is not to be tried.
        dry, name = case.name != "memory", f"hook-{case.name}"
        return Check(name, case.about, run(case), CASE_SECONDS, least_seconds=EXPECTED_SECONDS, runs_dry=dry)

    about = "throughput with the hook and without it, in turn"
    return [*map(check, CASES), Check("hook-cost", about, cost, CASE_SECONDS, least_seconds=20)]


def spec(context: Context, case: Case, folder: Path) -> Path:
    """A spec with at most one setting."""
    words = ["python3", str(SCRIPT), case.script, "--device", context.device, "--witness", str(folder / "witness.json")]
    words += ["--width", "8"] if context.dry else []
    value = json.dumps(case.setting)
    applied = f'setting = {{ values = [{value}], apply = "{case.target}" }}\n'
    space = applied if case.target else "nothing = { values = [1] }\n"
    seconds = 25
    text = (
        f'[step]\ncommand = {json.dumps(words)}\nadapter = "torch"\n[space]\n{space}{case.more}'
        f'[limits]\nprobe_time = "{seconds}s"\nstall_time = "{seconds}s"\nmeasure_time = "2s"\nmemory_headroom = 0\n'
    )
    path = folder / "spec.toml"
    path.write_text(text)
    return path


def witness_of(folder: Path) -> Witness:
    try:
        content = json.loads((folder / "witness.json").read_text())
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}


def judge_case(context: Context, report: Report, case: Case) -> None:
    folder = context.folder(f"hook/{case.name}")
    (folder / "witness.json").unlink(missing_ok=True)
    shutil.rmtree(folder / "probe", ignore_errors=True)
    done, probe = context.probe(spec(context, case, folder), folder / "probe", limit=context.left)
    seen, plain = witness_of(folder), witness_of(context.folder("hook/plain"))
    outcome = str(probe.get("outcome", "none"))
    report.number(outcome=outcome, seconds=done.seconds, witness=seen, facts=probe.get("facts"))
    told = f"{outcome}: {probe.get('reason') or done.last_line()}" if outcome != "measured" else outcome
    if context.dry and outcome != "measured":
        report.skip("outcome", " or ".join(case.outcomes), f"a dry run on the processor: {told}"[:200])
        return
    report.judge("outcome", " or ".join(case.outcomes), told[:200], outcome in case.outcomes)
    if case.judge is None or outcome != "measured":
        return
    if context.dry:
        count = len(seen.get("kernels", []))
        report.skip("witness", case.expected, f"a dry run on the processor; {count} operations seen")
    elif not seen or not plain:
        report.judge("witness", case.expected, "the script, or the plain one, wrote nothing", False)
    else:
        wrong = case.judge(seen, plain)
        report.judge("witness", case.expected, wrong or shown(seen), wrong is None)


def cost(context: Context, report: Report) -> None:
    """The script's own rate, alone and under the hook, as often as there is time for."""
    case, folder = CASES[0], context.folder("hook/cost")
    differences: list[float] = []
    longest = 0.0
    while context.left > 1.3 * longest + 2:
        begun = context.left
        alone = [sys.executable, str(SCRIPT), case.script, "--device", context.device, "--seconds", "4", "--witness"]
        process.run([*alone, str(folder / "alone.json")], context.left)
        (folder / "witness.json").unlink(missing_ok=True)
        shutil.rmtree(folder / "probe", ignore_errors=True)
        context.probe(spec(context, case, folder), folder / "probe", limit=context.left)
        rates = [read.get("step_seconds") for read in (read_json(folder / "alone.json"), witness_of(folder))]
        if all(rates):
            differences.append(rates[1] / rates[0] - 1)
        longest = max(longest, begun - context.left)
        report.number(differences=differences)
    if not differences:
        report.skip("time of a step", "within 1 % of that without the hook", "no pair of runs ended in time")
        return
    mean = statistics.mean(differences)
    spread = max(differences) - min(differences) if len(differences) > 1 else 0.0
    seen = f"{100 * mean:+.2f} % in {len(differences)} pairs"
    if abs(mean) > 0.01 and spread > abs(mean):
        report.skip("time of a step", "within 1 % of that without the hook", f"too noisy ({seen})")
    else:
        report.judge("time of a step", "within 1 % of that without the hook", seen, mean < 0.01)


def read_json(path: Path) -> Witness:
    try:
        content = json.loads(path.read_text())
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}
