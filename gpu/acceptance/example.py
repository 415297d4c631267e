"""The Rust example that trains with cudarc, `examples/cuda_step.rs`."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path
from typing import Optional

from . import process
from .context import Context
from .results import Report

NAME = "cuda_step"


def find(binary: Path) -> Optional[Path]:
    """The example next to gputune, or in Cargo's folder for examples."""
    places = (binary.with_name(NAME), binary.with_name("examples") / NAME)
    return next((place for place in places if os.access(place, os.X_OK)), None)


def compiler_folders() -> list[str]:
    """The folders of NVRTC in the wheels of PyTorch."""
    root = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    return sorted({str(path.parent) for path in root.glob("*/lib/libnvrtc.so*")})


def rust(context: Context, report: Report) -> None:
    """A search in the process of the training, over a kernel that the example compiles itself."""
    what, expected = "examples/cuda_step.rs", "exit code 0, and a best config"
    example = find(Path(context.binary))
    if example is None:
        report.skip(what, expected, f"{NAME} is not beside the binary: cargo build --release --example {NAME}")
        return
    beside = os.environ.get("LD_LIBRARY_PATH")
    paths = os.pathsep.join([*compiler_folders(), *([beside] if beside else [])])
    done = process.run([str(example)], context.left - 1, env={**context.environment(), "LD_LIBRARY_PATH": paths})
    rates = re.findall(r"^(.*): (\d+) samples/s$", done.stdout, re.MULTILINE)
    best = re.search(r"^best: (.*)$", done.stdout, re.MULTILINE)
    report.number(rates=rates, seconds=done.seconds)
    seen = f"{done.ended}; {len(rates)} configs; {'best: ' + best[1] if best else done.last_line()}"
    if context.dry and done.code != 0:
        report.skip(what, expected, f"a dry run: {seen}")
    else:
        report.judge(what, expected, seen, done.code == 0 and best is not None)
