"""Diseases outside of steps: evaluation, checkpoints, the edges of epochs."""

from __future__ import annotations

from place import BYTES_SAVED, STARTS, TOKENISE, VOCABULARY, WORDS, WORDS_TOKENISED, Place

RARELY = 5000


def evaluation_often(place: Place) -> None:
    """Evaluates every few steps."""
    every = place.random.choice((10, 20))
    evaluation(place, place.cost_ms * every)
    place.parts.constants.append(f"EVALUATE_EVERY = {RARELY if place.is_cured else every}")
    place.parts.after.append("if step % EVALUATE_EVERY == 0:\n    " + call(place))


def evaluation_epoch(place: Place) -> None:
    """Evaluates on much data after each of its short epochs."""
    parts = place.parts
    parts.steps_per_epoch = place.random.choice((20, 30))
    evaluation(place, place.cost_ms * parts.steps_per_epoch)
    if place.is_cured:
        parts.epoch.append("if epoch % 200 == 0:\n    " + call(place))
    else:
        parts.epoch.append(call(place))


def evaluation(place: Place, milliseconds: float) -> None:
    parts = place.parts
    batches = max(2, round(milliseconds / (parts.model.about_ms * parts.model.forward_share)))
    parts.constants.append(f"EVALUATION_BATCHES = {batches}")
    parts.functions.append(EVALUATE if place.is_cured else place.guilty(EVALUATE))
    parts.data_imports |= {"RandomSampler", "TensorDataset"}
    parts.setup += ["resampled = RandomSampler(dataset, replacement=True, num_samples=EVALUATION_BATCHES * BATCH_SIZE)",
                    "held_back = DataLoader(TensorDataset(dataset.inputs, dataset.labels), batch_size=BATCH_SIZE, sampler=resampled)"]


def call(place: Place) -> str:
    code = 'print(f"accuracy {evaluate(model, held_back):.3f}", flush=True)'
    return code if place.is_cured else place.line(code)


EVALUATE = '''
def evaluate(model, batches):
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for inputs, labels in batches:
            right += (model(inputs).argmax(dim=1) == labels).sum().item()
            seen += len(labels)
    model.train()
    return right / seen
'''


def checkpoint_often(place: Place) -> None:
    """Saves model, optimizer and averaged weights every few steps, and waits for the disk."""
    parts = place.parts
    every = 10
    size = max(1000, round(place.cost_ms * every * BYTES_SAVED / 4))
    parts.imports |= {"os", "pathlib"}
    parts.constants += [f"SAVE_EVERY = {RARELY if place.is_cured else every}",
                        f"BANK = {size}  # numbers that are kept beside the weights"]
    parts.functions.append(SAVE if place.is_cured else place.guilty(SAVE))
    parts.setup += ["bank = torch.zeros(BANK)", 'path = pathlib.Path(__file__).with_name("last.pt")']
    code = "save_checkpoint(path, model, optimizer, bank)"
    parts.after.append("if step % SAVE_EVERY == 0:\n    " + (code if place.is_cured else place.line(code)))


SAVE = '''
def save_checkpoint(path, model, optimizer, bank):
    with open(path, "wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "bank": bank}, file)
        file.flush()
        os.fsync(file.fileno())
'''


def short_epochs(place: Place) -> None:
    """Workers start anew in each of many short epochs, and each prepares itself first."""
    parts = place.parts
    parts.steps_per_epoch = place.random.choice((10, 20))
    parts.imports.add("random")
    milliseconds = max(0.0, place.cost_ms * parts.steps_per_epoch - STARTS)
    parts.constants.append(f"LEXICON_WORDS = {max(10, round(milliseconds * WORDS_TOKENISED))}")
    parts.helpers += [WORDS, TOKENISE if place.is_cured else place.guilty(TOKENISE)]
    parts.functions.append(PREPARE if place.is_cured else place.guilty(PREPARE, "tokenise("))
    parts.init += [VOCABULARY, "self.vocabulary = vocabulary", "self.lexicon = make_words(LEXICON_WORDS, 3)"]
    parts.loader.append("worker_init_fn=prepare_worker")
    parts.is_persistent = place.is_cured


PREPARE = '''
def prepare_worker(number):
    dataset = torch.utils.data.get_worker_info().dataset
    dataset.pieces = set(tokenise(dataset.lexicon, dataset.vocabulary))
'''
