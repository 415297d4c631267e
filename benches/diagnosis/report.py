"""What the bench found, for people (`diagnosis.md`) and programs (`diagnosis.json`)."""

import json
import statistics

ENOUGH = 0.5  # of the gain that was predicted


def write(folder, cases, lines, about):
    folder.mkdir(parents=True, exist_ok=True)
    found = [one(case, [line for line in lines if line["case"] == case["name"]]) for case in cases]
    found = [case for case in found if case]
    (folder / "diagnosis.json").write_text(json.dumps({"about": about, "cases": found}, indent=1) + "\n")
    (folder / "diagnosis.md").write_text(markdown(found, about))


def one(case, lines):
    """All that is known of a case."""
    diagnoses = [line for line in lines if line["part"] == "diagnose"]
    named = [line.get("named") or "(none)" for line in diagnoses]
    if not lines:
        return None
    right = [line for line in diagnoses if line.get("named") == case["cause"]]
    peers = {line["part"]: line for line in lines if line["part"] in ("traceml", "loadtune")}
    return {
        "case": case["name"],
        "command": case["command"],
        "cause": case["cause"],
        "runs": len(diagnoses),
        "right": len(right),
        "named": {name: named.count(name) for name in sorted(set(named))},
        "kinds": sorted({line["kind"] for line in right if line.get("kind")}),
        "seconds": middle([line["seconds"] for line in diagnoses if "seconds" in line]),
        "sureness": middle([line["sureness"] for line in right]),
        "remedies": remedies(case, right, [line for line in lines if line["part"] == "remedy" and "before" in line]),
        "peers": {name: {key: line.get(key) for key in ("verdict", "best", "error") if line.get(key)} for name, line in peers.items()},
    }


def remedies(case, right, measured):
    """What each remedy was predicted to bring, and what it brought."""
    rows = []
    for name, predicted in (("setting", "by_parameters"), ("cure", "times")):
        if name not in case:
            continue
        gains = [line[name] / ((line["before"] + line["after"]) / 2) for line in measured if name in line]
        told = [line["worth"].get(predicted) for line in right if line["worth"].get(predicted)]
        row = {"remedy": " ".join(case[name]), "predicted": middle(told), "measured": middle(gains), "all_measured": gains}
        if told and gains:
            gain, promise = row["measured"] - 1, row["predicted"] - 1
            row["share"] = gain / promise if promise > 0 else None
        rows.append(row)
    return rows


def middle(numbers):
    return statistics.median(numbers) if numbers else None


def markdown(cases, about):
    facts = ", ".join(f"{key} {value}" for key, value in about.items() if key not in ("command", "gputune"))
    text = ["# Whether `gputune diagnose` names the right cause, and what a remedy brings", "",
            f"`{about['command']}`", "", f"{about['gputune']}, {facts}.", "", *summary(cases), "",
            "| script | cause | named | seconds | sureness | else named |", "|---|---|--:|--:|--:|---|"]
    for case in cases:
        if case["runs"]:
            others = ", ".join(f"{name} {count}" for name, count in case["named"].items() if name != case["cause"])
            text.append(f"| {case['case']} | {case['cause']} | {case['right']} of {case['runs']} | {number(case['seconds'], 0)} | "
                        f"{number(case['sureness'], 2)} | {others} |")
    rows = [(case, row) for case in cases for row in case["remedies"] if row["measured"]]
    if rows:
        text += ["", "## Remedies", "",
                 "Predicted: the median of the diagnoses that named the cause, for a parameter what parameters should bring, for a cure "
                 "what is gained where the cause goes away. Measured: the script's own rate with the remedy over that without, "
                 "before and after, median. Share: what was gained of the gain predicted, which should be half or more.", "",
                 "| script | remedy | predicted | measured | share |", "|---|---|--:|--:|--:|"]
        for case, row in rows:
            share = f"{row['share']:.0%}".replace("%", " %") if row.get("share") is not None else ""
            text.append(f"| {case['case']} | `{row['remedy']}` | {times(row['predicted'])} | {times(row['measured'])} | {share} |")
    if any(case["peers"] for case in cases):
        text += ["", "## What others say", ""]
        for case in cases:
            if case["peers"]:
                named = ", ".join(f"{name} ({count})" for name, count in case["named"].items()) or "not run"
                text += [f"**{case['case']}** ({case['cause']})", "", f"- gputune: {named}"]
                text += [f"- {name}{how}: {said}" for name, peer in case["peers"].items() for how, said in sayings(peer)]
                text.append("")
    return "\n".join(text).rstrip() + "\n"


def summary(cases):
    """How many were right, in a line each."""
    sick = [case for case in cases if case["case"] != "healthy" and case["runs"]]
    lines = [f"- The right cause was named in {share_of((case['right'], case['runs']) for case in sick)} of sick scripts."]
    lines += [f"- The healthy script was called healthy in {share_of([(case['right'], case['runs'])])}."
              for case in cases if case["case"] == "healthy" and case["runs"]]
    shares = [row["share"] for case in cases for row in case["remedies"] if row.get("share") is not None]
    if shares:
        enough = sum(share >= ENOUGH for share in shares)
        lines.append(f"- {enough} of {len(shares)} remedies brought at least half of the gain that was predicted.")
    return lines


def share_of(pairs):
    right, runs = map(sum, zip(*pairs))
    return f"{right} of {runs} runs"


def sayings(peer):
    verdict = peer.get("verdict") or peer.get("error")
    best = f" Best: {peer['best']}." if peer.get("best") else ""
    if isinstance(verdict, dict):
        return [(f", the script {how}", said) for how, said in verdict.items()]
    return [("", f"{verdict}{best}")]


def number(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def times(value):
    return "" if value is None else f"{value:.2f}x"
