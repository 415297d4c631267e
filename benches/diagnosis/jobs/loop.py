"""Diseases of the training loop's own code: Python between steps, and what it waits for there."""

from __future__ import annotations

import math

from place import CELLS_OF_EDIT_DISTANCE, NUMBERS_WRITTEN, TOKENISE, VOCABULARY, WORDS, WORDS_TOKENISED, Place


def python_in_loop(place: Place) -> None:
    """Texts are tokenised between two steps."""
    parts = place.parts
    parts.imports.add("random")
    parts.constants.append(f"PROMPT_WORDS = {max(20, round(place.cost_ms * WORDS_TOKENISED))}")
    parts.helpers += [WORDS, TOKENISE if place.is_cured else place.guilty(TOKENISE)]
    parts.setup += [VOCABULARY, "prompts = [make_words(PROMPT_WORDS, prompt) for prompt in range(16)]"]
    if place.is_cured:
        parts.setup.append("lengths = [len(tokenise(prompt, vocabulary)) for prompt in prompts]")
        parts.before.append("length = lengths[step % 16]")
    else:
        parts.before.append(place.line("length = len(tokenise(prompts[step % 16], vocabulary))"))
    parts.after.append("longest = max(length, longest)")
    parts.setup.append("longest = 0")


def metrics_in_loop(place: Place) -> None:
    """A word error rate in Python after each step."""
    parts = place.parts
    cells = place.cost_ms * CELLS_OF_EDIT_DISTANCE
    pairs = max(1, round(cells / 3600))
    parts.constants += [f"PAIRS = {pairs}", f"WORDS_EACH = {max(8, round(math.sqrt(cells / pairs)))}"]
    parts.imports.add("random")
    parts.functions.append(ERROR_RATE if place.is_cured else place.guilty(ERROR_RATE))
    parts.setup += ["errors = 0.0",
                    "spoken = [[random.randrange(50) for _ in range(WORDS_EACH)] for _ in range(PAIRS)]"]
    call = "errors += error_rate(spoken, spoken[::-1])"
    if place.is_cured:
        parts.after.append(f"if step % 500 == 0:\n    {call}")
    else:
        parts.after.append(place.line(call))


ERROR_RATE = '''
def error_rate(references, hypotheses):
    """Edit distance over length."""
    errors = 0
    for reference, hypothesis in zip(references, hypotheses):
        row = list(range(len(hypothesis) + 1))
        for i, expected in enumerate(reference, 1):
            diagonal, row[0] = row[0], i
            for j, said in enumerate(hypothesis, 1):
                change = min(row[j] + 1, row[j - 1] + 1, diagonal + (expected != said))
                diagonal, row[j] = row[j], change
        errors += row[-1]
    return errors / sum(len(reference) for reference in references)
'''


def monitor_in_loop(place: Place) -> None:
    """Reads how much memory each mapping of the process takes, in each step."""
    parts = place.parts
    parts.functions.append(MEMORY if place.is_cured else place.guilty(MEMORY))
    parts.setup.append("peak = 0")
    call = "peak = max(peak, resident_kilobytes())"
    if place.is_cured:
        parts.after.append(f"if step % 500 == 0:\n    {call}")
    else:
        parts.after.append(place.line(call))


MEMORY = '''
def resident_kilobytes():
    with open("/proc/self/smaps") as mappings:
        return sum(int(line.split()[1]) for line in mappings if line.startswith("Rss:"))
'''


def logging_each_step(place: Place) -> None:
    """Writes what the model put out, as JSON, in each step."""
    parts = place.parts
    parts.imports |= {"json", "pathlib"}
    parts.constants.append(f"LOGGED = {max(64, round(place.cost_ms * NUMBERS_WRITTEN))}")
    parts.functions.append(LOG if place.is_cured else place.guilty(LOG))
    parts.setup += ['log = pathlib.Path(__file__).with_name("weights.json")']
    call = "log_weights(log, model, step)"
    if place.is_cured:
        parts.after.append(f"if step % 500 == 0:\n    {call}")
    else:
        parts.after.append(place.line(call))


LOG = '''
def log_weights(path, model, step):
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    values = weights.repeat(LOGGED // len(weights) + 1)[:LOGGED].tolist()
    with open(path, "w") as file:
        json.dump({"step": step, "weights": values}, file)
'''


def tracker_waits(place: Place) -> None:
    """Tells a tracking server of each step, and waits for its answer."""
    parts = place.parts
    parts.imports.add("time")
    parts.constants.append(f"TRACKER_ANSWERS = {place.cost_ms / 1000:.5f}  # seconds")
    parts.helpers.append(TRACKER if place.is_cured else place.guilty(TRACKER, "time.sleep"))
    parts.setup.append("tracker = Tracker()")
    call = 'tracker.log({"step": step, "lr": args.lr})'
    if place.is_cured:
        parts.after.append(f"if step % 500 == 0:\n    {call}")
    else:
        parts.after.append(f"{call}  #@{place.number}")


TRACKER = '''
class Tracker:
    """Stands for a client of a tracking server."""

    def __init__(self):
        self.sent = 0

    def log(self, values):
        time.sleep(TRACKER_ANSWERS)
        self.sent += len(values)
'''
