"""The second set of kinds that are kept out, written after rules had been judged with the first. Whoever works on rules leaves it alone."""

from __future__ import annotations

import data
from data import both, fetch, takes_three
from outside import RARELY
from place import Place

# What is done in a millisecond, as in `place`; the names there would say too much of what is here.
NUMBERS_UNPACKED = 2600
ROWS_COPIED = 33_000
INDICES_DRAWN = 2000
NUMBERS_RECEIVED = 25_000
NUMBERS_SPREAD = 14_000
ENTRIES_RANKED = 900
PIXELS_DRAWN = 3400
LISTS_VISITED = 8000
VISITS = 120  # milliseconds for what torch itself has in memory
SLEEPS = 0.06  # milliseconds that a sleep takes longer than it should


# Loaders.


def packed_records(place: Place) -> None:
    """Each sample is packed JSON, which `__getitem__` unpacks."""
    parts = place.parts
    parts.imports |= {"json", "zlib"}
    parts.constants.append(f"POINTS = {max(8, round(place.each_ms * NUMBERS_UNPACKED))}")
    parts.helpers += [PACK, UNPACK if place.is_cured else place.guilty(UNPACK)]
    packed = "[pack(torch.rand(POINTS, generator=generator).tolist()) for _ in range(64)]"
    if place.is_cured:
        parts.init.append(f"self.points = [unpack(record) for record in {packed}]")
        parts.methods = fetch("return self.inputs[index], self.labels[index], len(self.points[index % 64])")
    else:
        parts.init.append(f"self.records = {packed}")
        parts.methods = fetch(place.line("points = unpack(self.records[index % 64])"),
                              "return self.inputs[index], self.labels[index], len(points)")
    takes_three(parts)


PACK = '''
def pack(points):
    return zlib.compress(json.dumps({"version": 2, "points": points}).encode())
'''
UNPACK = '''
def unpack(record):
    return json.loads(zlib.decompress(record))["points"]
'''


def whole_column(place: Place) -> None:
    """A table makes a list of a whole column for each row that is read of it, in the training process."""
    parts = place.parts
    parts.constants.append(f"ROWS = {max(64, round(place.each_ms * ROWS_COPIED))}")
    head, body = TABLE.split("    def __getitem__")
    parts.helpers.append(TABLE if place.is_cured else head + place.guilty("    def __getitem__" + body))
    rows = '[(f"{row:06}.wav", row % 97, 1.0 + row % 17) for row in range(ROWS)]'
    parts.init += [f"rows = {rows}", 'self.table = Table(["path", "speaker", "duration"], rows)']
    if place.is_cured:
        parts.init.append('self.durations = self.table["duration"]')
        parts.methods = fetch("return self.inputs[index], self.labels[index], self.durations[index % ROWS]")
    else:
        parts.methods = fetch(place.line('duration = self.table["duration"][index % ROWS]'),
                              "return self.inputs[index], self.labels[index], duration")
    takes_three(parts)


TABLE = '''
class Table:
    """Rows, read by the names of their columns."""

    def __init__(self, names, rows):
        self.names, self.rows = names, rows

    def __getitem__(self, name):
        position = self.names.index(name)
        return [row[position] for row in self.rows]
'''


def choosing_batches(place: Place) -> None:
    """A batch sampler looks for samples of like length, in the training process, whatever workers there are."""
    parts = place.parts
    parts.imports.add("random")
    parts.data_imports.add("Sampler")
    parts.init.append("self.lengths = torch.randint(20, 400, (length,), generator=generator).tolist()")
    parts.batches = "batch_sampler=LeastPadding(dataset.lengths, BATCH_SIZE)"
    if place.is_cured:
        parts.helpers.append(CUT_ONCE)
    else:
        parts.constants.append(f"DRAWS = {max(2, round(place.cost_ms * INDICES_DRAWN / parts.batch))}")
        head, body = DRAWN.split("    def __iter__")
        parts.helpers.append(head + place.guilty("    def __iter__" + body, "yield min("))


DRAWN = '''
class LeastPadding(Sampler):
    """Of random batches those that need the least padding."""

    def __init__(self, lengths, size):
        self.lengths, self.size = lengths, size

    def __len__(self):
        return len(self.lengths) // self.size

    def __iter__(self):
        for _ in range(len(self)):
            yield min((self.draw() for _ in range(DRAWS)), key=self.padding)

    def draw(self):
        return random.sample(range(len(self.lengths)), self.size)

    def padding(self, batch):
        longest = max(self.lengths[index] for index in batch)
        return sum(longest - self.lengths[index] for index in batch)
'''
CUT_ONCE = '''
class LeastPadding(Sampler):
    """Batches of neighbours in length, in random order."""

    def __init__(self, lengths, size):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[at:at + size] for at in range(0, len(order) - size + 1, size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(random.sample(self.batches, len(self.batches)))
'''


def small_reads(place: Place) -> None:
    """A record is read from a share in small pieces, each of which is a round trip."""
    parts = place.parts
    parts.imports |= {"os", "pathlib"}
    parts.constants += ["RECORDS = 2048", "RECORD_BYTES = 4096"]
    if place.is_cured:
        parts.helpers.append(IN_MEMORY)
    else:
        pieces = place.random.choice((4, 8)) if place.each_ms > 1 else 4
        trip = max(0.02, place.each_ms / pieces - SLEEPS)
        parts.imports.add("time")
        parts.constants += [f"PIECE_BYTES = {4096 // pieces}", f"ROUND_TRIP = {trip / 1000:.6f}  # seconds"]
        head, body = IN_PIECES.split("    def record")
        parts.helpers.append(head + place.guilty("    def record" + body, "time.sleep"))
    parts.init.append('self.share = Share(pathlib.Path(__file__).with_name("features.bin"))')
    read = "record = self.share.record(index % RECORDS)"
    parts.methods = fetch(read if place.is_cured else f"{read}  #@{place.number}",
                          "return self.inputs[index], self.labels[index], record[0]")
    takes_three(parts)


MADE = '''
class Share:
    """Features in one file of a mounted share."""

    def __init__(self, path):
        if not path.exists() or path.stat().st_size != RECORDS * RECORD_BYTES:
            path.write_bytes(os.urandom(RECORDS * RECORD_BYTES))
            os.sync()
'''
IN_PIECES = MADE + '''        self.file = os.open(path, os.O_RDONLY)

    def record(self, number):
        start = number * RECORD_BYTES
        pieces = [self.read(start + at, PIECE_BYTES) for at in range(0, RECORD_BYTES, PIECE_BYTES)]
        os.posix_fadvise(self.file, start, RECORD_BYTES, os.POSIX_FADV_DONTNEED)
        return b"".join(pieces)

    def read(self, offset, size):
        time.sleep(ROUND_TRIP)
        return os.pread(self.file, size, offset)
'''
IN_MEMORY = MADE + '''        self.data = path.read_bytes()

    def record(self, number):
        return self.data[number * RECORD_BYTES:(number + 1) * RECORD_BYTES]
'''


def nested_lists(place: Place) -> None:
    """Workers hand over lists of numbers, which the training process makes one by one, where a tensor would do."""
    parts = place.parts
    parts.constants.append(f"OUTLINE = {max(64, round(place.cost_ms * NUMBERS_RECEIVED / parts.batch))}")
    outlines = "torch.rand(64, OUTLINE, generator=generator)"
    item = "return self.inputs[index], self.labels[index], self.outlines[index % 64]"
    if place.is_cured:
        parts.init.append(f"self.outlines = {outlines}")
        parts.methods = fetch(item)
        parts.functions.append(COLLATE_TENSORS)
    else:
        parts.init.append(f"self.outlines = {outlines}.tolist()")
        parts.methods = fetch(f"{item}  #@{place.number}")
        parts.functions.append(place.guilty(COLLATE_LISTS, "list(outline)"))
    parts.loader.append("collate_fn=collate")
    takes_three(parts)


COLLATE_LISTS = '''
def collate(batch):
    inputs, labels, outlines = zip(*batch)
    return torch.stack(inputs), torch.stack(labels), [list(outline) for outline in outlines]
'''
COLLATE_TENSORS = '''
def collate(batch):
    inputs, labels, outlines = zip(*batch)
    return torch.stack(inputs), torch.stack(labels), torch.stack(outlines)
'''


# The loop's own code.


def limited_service(place: Place) -> None:
    """Asks a service in each step that answers so many times a second and no more."""
    parts = place.parts
    parts.imports.add("time")
    parts.constants.append(f"REQUESTS_PER_SECOND = {1000 / (parts.model.about_ms + place.cost_ms):.2f}")
    parts.helpers.append(CLIENT if place.is_cured else place.guilty(CLIENT, "time.sleep"))
    parts.setup += ["client = FeatureClient(REQUESTS_PER_SECOND)", "flagged = 0"]
    if place.is_cured:
        parts.setup.append("features = [client.features(number) for number in range(16)]")
        parts.before.append("flagged += features[step % 16][0]")
    else:
        parts.before.append(f"flagged += client.features(step % 16)[0]  #@{place.number}")


CLIENT = '''
class FeatureClient:
    """Stands for a client of a feature service that keeps to its rate."""

    def __init__(self, rate):
        self.interval, self.free_at = 1 / rate, 0.0

    def features(self, number):
        now = time.monotonic()
        if now < self.free_at:
            time.sleep(self.free_at - now)
        self.free_at = max(now, self.free_at) + self.interval
        return [number * 7 % 10, number % 3]
'''


def activation_hooks(place: Place) -> None:
    """Hooks on modules go through what these put out lately, in Python, in each forward pass."""
    parts = place.parts
    if place.is_cured:
        parts.helpers.append(AVERAGED)
    else:
        parts.imports |= {"collections", "math"}
        parts.constants.append(f"WINDOW = {max(64, round(place.cost_ms * NUMBERS_SPREAD / 2))}")
        head, body = WATCHED.split("    def update")
        parts.helpers.append(head + place.guilty("    def update" + body, "math.sqrt("))
    parts.setup += ["layers = list(model.children())", "watched = [Activations(layers[0]), Activations(layers[-1])]"]
    parts.epoch.append('print(", ".join(f"{layer.mean:.3f} +- {layer.deviation:.3f}" for layer in watched), flush=True)')


WATCHED = '''
class Activations:
    """Mean and deviation of what a layer put out lately."""

    def __init__(self, layer):
        self.mean = self.deviation = 0.0
        self.recent = collections.deque([0.0] * WINDOW, WINDOW)
        layer.register_forward_hook(self.update)

    def update(self, layer, inputs, outputs):
        self.recent.extend(outputs.detach().flatten()[:128].tolist())
        self.mean = sum(self.recent) / len(self.recent)
        self.deviation = math.sqrt(sum((value - self.mean) ** 2 for value in self.recent) / len(self.recent))
'''
AVERAGED = '''
class Activations:
    """Mean and deviation of what a layer put out lately."""

    def __init__(self, layer):
        self.mean = self.deviation = 0.0
        layer.register_forward_hook(self.update)

    def update(self, layer, inputs, outputs):
        deviation, mean = torch.std_mean(outputs.detach())
        self.mean += 0.01 * (mean.item() - self.mean)
        self.deviation += 0.01 * (deviation.item() - self.deviation)
'''


def frees_memory(place: Place) -> None:
    """Has Python look for garbage in each step, among much that is none."""
    parts = place.parts
    parts.imports.add("gc")
    parts.constants.append(f"SEGMENTS = {max(64, round((place.cost_ms - VISITS) * LISTS_VISITED))}")
    parts.init.append("self.segments = [[start, start + 7] for start in range(SEGMENTS)]")
    parts.methods = fetch("start, end = self.segments[index % SEGMENTS]",
                          "return self.inputs[index], self.labels[index], end - start")
    takes_three(parts)
    parts.functions.append(FREE if place.is_cured else place.guilty(FREE, "gc.collect()"))
    parts.after.append("if step % 500 == 0:\n    free_memory()" if place.is_cured else f"free_memory()  #@{place.number}")


FREE = '''
def free_memory():
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
'''


# Outside of steps.


def scores_by_callback(place: Place) -> None:
    """A callback's method goes through held back samples every few steps."""
    parts = place.parts
    every = place.random.choice((5, 10))
    batches = max(2, round(place.cost_ms * every / (parts.model.about_ms * parts.model.forward_share)))
    parts.constants += [f"CHECK_EVERY = {RARELY if place.is_cured else every}", f"CHECKED_BATCHES = {batches}"]
    head, body = CALLBACK.split("    def on_step_end")
    parts.functions.append(CALLBACK if place.is_cured else head + place.guilty("    def on_step_end" + body))
    parts.setup += ["held_back = list(zip(dataset.inputs.split(BATCH_SIZE), dataset.labels.split(BATCH_SIZE)))[:CHECKED_BATCHES]",
                    "selection = KeepBest(model, criterion, held_back)"]
    code = "selection.on_step_end(step)"
    parts.after.append(code if place.is_cured else place.line(code))


CALLBACK = '''
class KeepBest:
    """Looks at the loss on samples that are held back, and keeps the best."""

    def __init__(self, model, criterion, batches):
        self.model, self.criterion, self.batches = model, criterion, batches
        self.best = float("inf")

    def on_step_end(self, step):
        if step % CHECK_EVERY:
            return
        self.model.train(False)
        with torch.inference_mode():
            losses = [self.criterion(self.model(inputs), labels).item() for inputs, labels in self.batches]
        self.model.train(True)
        self.best = min(self.best, sum(losses) / len(losses))
'''


def pictures_of_weights(place: Place) -> None:
    """Draws weights as a picture every few steps, pixel by pixel."""
    parts = place.parts
    every = place.random.choice((5, 10))
    parts.imports.add("pathlib")
    rows = max(4, round(place.cost_ms * every * PIXELS_DRAWN / 512))
    parts.constants += [f"DRAW_EVERY = {RARELY if place.is_cured else every}", f"ROWS, COLUMNS = {rows}, 512"]
    parts.functions.append(DRAW if place.is_cured else place.guilty(DRAW))
    parts.setup.append('pictures = pathlib.Path(__file__).with_name("weights.pgm")')
    code = "draw(pictures, model)"
    parts.after.append("if step % DRAW_EVERY == 0:\n    " + (code if place.is_cured else place.line(code)))


DRAW = '''
def draw(path, model):
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).nan_to_num()
    values = weights.repeat(ROWS * COLUMNS // len(weights) + 1)[:ROWS * COLUMNS].tolist()
    pixels = bytes(min(255, max(0, int(128 + 400 * value))) for value in values)
    path.write_bytes(f"P5 {COLUMNS} {ROWS} 255\\n".encode() + pixels)
'''


def corpus_each_epoch(place: Place) -> None:
    """Chooses the samples of each of its short epochs from a large corpus, entry by entry."""
    parts = place.parts
    parts.steps_per_epoch = place.random.choice((20, 30))
    parts.imports.add("random" if place.is_cured else "hashlib")
    entries = max(1000, round(place.cost_ms * parts.steps_per_epoch * ENTRIES_RANKED))
    parts.constants.append(f"ENTRIES = {entries}")
    parts.init.append("self.chosen = list(range(length))")
    parts.methods = both(RESAMPLE_RANDOMLY if place.is_cured else place.guilty(RESAMPLE_BY_HASH), CHOSEN)
    code = "dataset.resample(epoch)"
    parts.epoch.append(code if place.is_cured else place.line(code))


RESAMPLE_BY_HASH = '''
def resample(self, epoch):
    ranked = sorted(range(ENTRIES), key=lambda entry: hashlib.md5(f"{epoch}/{entry}".encode()).digest())
    self.chosen = ranked[:len(self)]
'''
RESAMPLE_RANDOMLY = '''
def resample(self, epoch):
    self.chosen = random.Random(epoch).sample(range(ENTRIES), len(self))
'''
CHOSEN = '''
def __getitem__(self, index):
    at = self.chosen[index] % len(self)
    return self.inputs[at], self.labels[at]
'''


# Jobs that nothing is wrong with.


def healthy_accumulation(place: Place) -> None:
    """Adds up the gradients of a few batches, and sets the learning rate in each step."""
    parts = place.parts
    parts.imports.add("math")
    parts.constants += [f"ACCUMULATE = {place.random.choice((2, 4, 8))}", "WARM_UP = 200", "DECAY = 20_000"]
    parts.functions.append(RATE)
    parts.before.append('for group in optimizer.param_groups:\n    group["lr"] = rate_at(step, args.lr)')
    parts.backward = ["(loss / ACCUMULATE).backward()",
                      "if (step + 1) % ACCUMULATE == 0:\n    optimizer.step()\n    optimizer.zero_grad()"]


RATE = '''
def rate_at(step, highest):
    if step < WARM_UP:
        return highest * (step + 1) / WARM_UP
    return highest * (0.55 + 0.45 * math.cos(math.pi * min(1.0, step / DECAY)))
'''


def healthy_waiting_worker(place: Place) -> None:
    """A worker waits for its records and keeps up, and the model is saved now and then."""
    data.slow_storage(place)
    parts = place.parts
    parts.setup.append('saved = pathlib.Path(__file__).with_name("model.pt")')
    parts.after.append("if step % 1000 == 0:\n    torch.save(model.state_dict(), saved)")
