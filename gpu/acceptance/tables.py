"""A search's journal as a table that `gputune replay` reads: one row for each config, failures included."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path
from typing import Any, Optional

# What a probe that was no success is called in the tables of benchmark collections.
STATUS = {
    "measured": "ok",
    "out_of_memory": "oom_fail",
    "rejected": "compile_fail",
    "diverged": "invalid_measurement",
}
EXTRA = (
    "x_outcome",
    "x_peak_memory_bytes",
    "x_data_wait_s",
    "x_sm_activity",
    "x_step_s",
    "x_forward_s",
    "x_backward_s",
    "x_optimizer_s",
    "x_power_w",
    "x_gpu_busy",
)
Row = dict[str, Any]


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The trials of a journal, without its head, and without a last line that was cut off."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    trials = []
    for line in lines:
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, dict) and "trial" in content and "config" in content:
            trials.append(content)
    return trials


def rows(trials: list[dict[str, Any]], names: list[str]) -> list[Row]:
    """One row for each config, in the order in which the configs were first probed."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for trial in trials:
        grouped.setdefault(json.dumps(trial["config"], sort_keys=True), []).append(trial)
    return [row(group, names) for group in grouped.values()]


def row(group: list[dict[str, Any]], names: list[str]) -> Row:
    """A config that succeeded at least once has the mean of its successes; else it is the failure that came first."""
    good = [trial for trial in group if STATUS.get(trial["outcome"]) == "ok" and "throughput" in trial]
    chosen = good[0] if good else group[0]
    values = [float(trial["throughput"]["value"]) for trial in good]
    made: Row = {name: shown(chosen["config"].get(name)) for name in names}
    made["status"] = "ok" if good else STATUS.get(chosen["outcome"], "runtime_fail")
    if made["status"] == "ok" and not good:
        made["status"] = "runtime_fail"
    made["value"] = statistics.mean(values) if values else ""
    made["value_std"] = deviation(chosen, values)
    made["n_rep"] = len(values) or 1
    made["cost_s"] = chosen.get("elapsed_s", "")
    phases, metrics = chosen.get("phase_seconds", {}), gpu_readings(chosen)
    made["x_outcome"] = chosen["outcome"]
    made["x_peak_memory_bytes"] = chosen.get("peak_memory_bytes", "")
    made["x_data_wait_s"] = phases.get("data_wait", "")
    made["x_sm_activity"] = metrics.get("sm_active", "")
    made["x_step_s"] = chosen.get("step_seconds", "")
    for phase in ("forward", "backward", "optimizer"):
        made[f"x_{phase}_s"] = phases.get(phase, "")
    made["x_power_w"] = metrics.get("power", "")
    made["x_gpu_busy"] = metrics.get("gpu_busy", "")
    return made


def shown(value: Any) -> str:
    """As the other tables write it; a parameter that is not active has an empty cell."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def deviation(trial: dict[str, Any], values: list[float]) -> Any:
    """Of repeats where there are any, else what the interval of one measurement says."""
    if len(values) > 1:
        return statistics.stdev(values)
    throughput = trial.get("throughput")
    return (throughput["high"] - throughput["low"]) / (2 * 1.96) if throughput else ""


def gpu_readings(trial: dict[str, Any]) -> dict[str, float]:
    gpus = trial.get("gpus") or []
    readings = gpus[0].get("readings", {}) if gpus else {}
    return {name: reading["value"] for name, reading in readings.items()}


def write_table(path: Path, made: list[Row], names: list[str]) -> None:
    columns = [*names, "status", "value", "value_std", "n_rep", "cost_s", *EXTRA]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(made)


def manifest(made: list[Row], names: list[str], kinds: dict[str, str], hardware: str, note: str) -> dict[str, Any]:
    """What the manifest of the recorded tables says of each."""
    values = sorted((float(row["value"]) for row in made if row["status"] == "ok"), reverse=True)
    failures = [row["status"] for row in made if row["status"] != "ok"]
    levels = {name: len({row[name] for row in made}) for name in names}
    cartesian = 1
    for count in levels.values():
        cartesian *= count
    best = values[0] if values else None
    within = {
        f"within{share}": sum(value >= best * (1 - share / 100) for value in values) if best else 0
        for share in (1, 5, 10)
    }
    return {
        "source": "gputune, gpu/acceptance.sh",
        "licence": "MIT OR Apache-2.0",
        "hardware": hardware,
        "direction": "max",
        "params": names,
        "levels": levels,
        "kinds": {name: kinds.get(name, "categorical") for name in names},
        "cartesian": cartesian,
        "rows": len(made),
        "ok": len(values),
        "failing": len(failures),
        "fail_kinds": {kind: failures.count(kind) for kind in sorted(set(failures))},
        "best": best,
        "median": statistics.median(values) if values else None,
        "worst": values[-1] if values else None,
        **within,
        "note": note,
    }


def value_of(made: list[Row], config: dict[str, Any], names: list[str]) -> Optional[float]:
    """What the table says of a config, where it was measured."""
    wanted = [shown(config.get(name)) for name in names]
    for row in made:
        if [row[name] for name in names] == wanted and row["status"] == "ok":
            return float(row["value"])
    return None
