"""Jobs of several ranks, small batches, and jobs that nothing is wrong with."""

from __future__ import annotations

import data
from place import TOKENISE, VOCABULARY, WORDS, WORDS_TOKENISED, Place

BEGIN = ['torch.distributed.init_process_group("gloo")', "rank = torch.distributed.get_rank()"]


def ranks(place: Place) -> None:
    parts = place.parts
    parts.is_distributed = True
    parts.from_imports.add("from torch.nn.parallel import DistributedDataParallel")
    parts.begin += BEGIN
    parts.wrap = "DistributedDataParallel({})"
    parts.end.append("torch.distributed.destroy_process_group()")


def big_gradients(place: Place) -> None:
    """Ranks exchange many gradients for little computing."""
    ranks(place)
    parts = place.parts
    if place.is_cured:
        parts.imports.add("contextlib")
        parts.constants.append("ACCUMULATE = 8")
        parts.backward = [ACCUMULATED]
    else:
        parts.backward = ["optimizer.zero_grad()", place.line("loss.backward()"), "optimizer.step()"]


ACCUMULATED = '''
is_last = (step + 1) % ACCUMULATE == 0
with contextlib.nullcontext() if is_last else model.no_sync():
    loss.backward()
if is_last:
    optimizer.step()
    optimizer.zero_grad()
'''


def slow_rank(place: Place) -> None:
    """One rank has the longer texts, and the others wait for it."""
    ranks(place)
    parts = place.parts
    parts.imports.add("random")
    words = max(20, round(place.cost_ms * WORDS_TOKENISED))
    parts.constants.append(f"LONGEST = {words}")
    parts.helpers += [WORDS, TOKENISE if place.is_cured else place.guilty(TOKENISE)]
    share = "LONGEST // 10" if place.is_cured else "LONGEST if rank == 1 else LONGEST // 10"
    parts.setup += [VOCABULARY, f"text = make_words({share}, rank)"]
    code = "length = len(tokenise(text, vocabulary))"
    parts.before.append(code if place.is_cured else place.line(code))


def tiny_batch(place: Place) -> None:
    """Batches of two samples: most of a step is there whatever the batch."""
    place.parts.batch = 32 if place.is_cured else place.random.choice((1, 2))


def healthy_clipping(place: Place) -> None:
    """Clips gradients and reads its loss in each step."""
    parts = place.parts
    parts.setup.append("losses = []")
    parts.backward = ["optimizer.zero_grad()", "loss.backward()", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "optimizer.step()"]
    parts.after.append("losses.append(loss.item())")


def healthy_evaluation(place: Place) -> None:
    """A short evaluation now and then."""
    parts = place.parts
    parts.functions.append(SHORT_EVALUATION)
    parts.after.append('if step % 500 == 0:\n    print(f"accuracy {evaluate(model, dataset):.3f}", flush=True)')


SHORT_EVALUATION = '''
@torch.no_grad()
def evaluate(model, dataset):
    model.eval()
    right = (model(dataset.inputs[:BATCH_SIZE]).argmax(dim=1) == dataset.labels[:BATCH_SIZE]).float().mean().item()
    model.train()
    return right
'''


def healthy_busy_worker(place: Place) -> None:
    """A worker computes a third of the time, and keeps up."""
    data.decode_text(place)
