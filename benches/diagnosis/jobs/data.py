"""Diseases of the loader: computing, waiting, and what workers share."""

from __future__ import annotations

from place import NUMBERS_NORMALISED, TOKENISE, VOCABULARY, WORDS, WORDS_TOKENISED, Place
from skeleton import Parts

NORMALISE = '''
def standardise(values):
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) or 1.0
    return [(value - mean) / deviation for value in values]
'''


def collate_computes(place: Place) -> None:
    """`collate_fn` goes through each sample in Python."""
    parts = place.parts
    parts.imports |= {"math"}
    count = max(16, round(place.each_ms * NUMBERS_NORMALISED))
    parts.constants.append(f"EXTRA = {count}")
    parts.init.append("self.extra = torch.rand(64, EXTRA, generator=generator).tolist()")
    if place.is_cured:
        parts.imports -= {"math"}
        parts.init.append("self.scale = torch.tensor(self.extra).mean(dim=1)")
        parts.methods = fetch("return self.inputs[index], self.labels[index], self.scale[index % 64]")
        parts.functions.append(COLLATE_READY)
    else:
        parts.methods = fetch("return self.inputs[index], self.labels[index], self.extra[index % 64]")
        parts.functions.append(place.guilty(NORMALISE))
        parts.functions.append(place.guilty(COLLATE, "standardise(extra)"))
    parts.loader.append("collate_fn=collate")


COLLATE = '''
def collate(batch):
    inputs, labels, scales = [], [], []
    for sample, label, extra in batch:
        scales.append(max(standardise(extra)))
        inputs.append(sample)
        labels.append(label)
    return torch.stack(inputs), torch.stack(labels)
'''
COLLATE_READY = '''
def collate(batch):
    inputs, labels, _ = zip(*batch)
    return torch.stack(inputs), torch.stack(labels)
'''


def collate_waits(place: Place) -> None:
    """`collate_fn` asks a service for what belongs to a batch, and waits for its answer."""
    parts = place.parts
    parts.data_imports.add("default_collate")
    if place.is_cured:
        parts.functions.append(FEATURES_AT_HAND)
    else:
        parts.imports |= {"time"}
        parts.constants.append(f"ROUND_TRIP = {place.cost_ms / 1000:.5f}  # seconds, of the feature service")
        parts.functions.append(place.guilty(FEATURE_SERVICE))
        parts.functions.append(place.guilty(COLLATE_ASKS, "look_up("))
    parts.loader.append("collate_fn=collate")


FEATURE_SERVICE = '''
def look_up(labels):
    time.sleep(ROUND_TRIP)
    return [int(label) * 7 % 10 for label in labels]
'''
COLLATE_ASKS = '''
def collate(batch):
    features = look_up([label for _, label in batch])
    assert len(features) == len(batch)
    return default_collate(batch)
'''
FEATURES_AT_HAND = '''
def collate(batch):
    return default_collate(batch)
'''


def transform_computes(place: Place) -> None:
    """Augmentations of each sample, composed as torchvision does, in `__getitem__`."""
    parts = place.parts
    parts.imports |= {"random"}
    rounds = max(1, round(place.each_ms / 0.08))  # what a pass takes with its operator's overhead
    parts.constants.append(f"BLUR_PASSES = {rounds}")
    parts.helpers.append(COMPOSE)
    parts.helpers.append(place.guilty(BLUR, "sort("))
    transforms = "Compose([RandomGain(), Blur(BLUR_PASSES)])"
    if place.is_cured:  # once, before training: what `__getitem__` hands out is ready
        parts.helpers[-1] = BLUR
        parts.init += [f"transform = {transforms}", "self.views = [transform(torch.rand(3, 24, 24)).mean() for _ in range(64)]"]
        parts.methods = fetch("return self.inputs[index], self.labels[index], self.views[index % 64]")
    else:
        parts.init += ["self.pictures = torch.rand(64, 3, 24, 24, generator=generator)", f"self.transform = {transforms}"]
        parts.methods = fetch(place.line("view = self.transform(self.pictures[index % 64])").replace("!", ""),
                              "return self.inputs[index], self.labels[index], view.mean()")
    takes_three(parts)


COMPOSE = '''
class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, picture):
        for transform in self.transforms:
            picture = transform(picture)
        return picture


class RandomGain:
    def __call__(self, picture):
        return picture * random.uniform(0.8, 1.2)
'''
BLUR = '''
class Blur:
    def __init__(self, passes):
        self.passes = passes

    def __call__(self, picture):
        blurred = picture
        for _ in range(self.passes):
            blurred = nn.functional.avg_pool2d(blurred, 5, 1, 2).sort(dim=-1).values
        return blurred
'''


def no_workers(place: Place) -> None:
    """The training process makes its samples itself, in Python."""
    decode_text(place)


def decode_text(place: Place) -> None:
    parts = place.parts
    parts.imports |= {"random"}
    words = max(4, round(place.each_ms * WORDS_TOKENISED))
    parts.constants.append(f"WORDS = {words}")
    parts.helpers += [WORDS, TOKENISE if place.is_cured else place.guilty(TOKENISE)]
    parts.init += [VOCABULARY, "self.vocabulary = vocabulary", "self.texts = [make_words(WORDS, text) for text in range(64)]"]
    if place.is_cured:
        parts.init.append("self.pieces = [len(tokenise(text, vocabulary)) for text in self.texts]")
        parts.methods = fetch("return self.inputs[index], self.labels[index], self.pieces[index % 64]")
    else:
        parts.methods = fetch(place.line("pieces = tokenise(self.texts[index % 64], self.vocabulary)"),
                              "return self.inputs[index], self.labels[index], len(pieces)")
    takes_three(parts)


def threads_in_worker(place: Place) -> None:
    """A worker's own threads decode its samples in Python, one at a time, since they share its interpreter."""
    decode_text(place)
    parts = place.parts
    parts.from_imports.add("from concurrent.futures import ThreadPoolExecutor")
    parts.init.append("self.pool = None")
    parts.methods = both(parts.methods.replace("__getitem__", "load"), BY_THREADS)


BY_THREADS = '''
def __getitems__(self, indices):
    if self.pool is None:
        self.pool = ThreadPoolExecutor(4)
    return list(self.pool.map(self.load, indices))
'''


def slow_storage(place: Place) -> None:
    """Every sample comes from a disk, past the page cache, and from far away."""
    storage(place, "time.sleep(LATENCY)", [f"LATENCY = {place.each_ms / 1000:.6f}  # seconds"])


def bursty_storage(place: Place) -> None:
    """Most samples come at once, and now and then one takes very long."""
    rare = place.random.choice((40, 80, 160))
    slow = place.each_ms * rare / 1000
    place.parts.imports.add("random")
    storage(place, "if random.random() < 1 / RETRY_EVERY:\n            time.sleep(RETRY)",
            [f"RETRY_EVERY = {rare}  # requests", f"RETRY = {slow:.5f}  # seconds"])


STORE = '''
class Store:
    """Records of one file, on a disk that is shared with others."""

    def __init__(self, path, records, size):
        self.size = size
        if not path.exists() or path.stat().st_size != records * size:
            path.write_bytes(os.urandom(records * size))
            os.sync()
        self.file = os.open(path, os.O_RDONLY)

    def read(self, record):
        {wait}
        data = os.pread(self.file, self.size, record * self.size)
        os.posix_fadvise(self.file, record * self.size, self.size, os.POSIX_FADV_DONTNEED)
        return data
'''
LOCAL = '''
class Store:
    """Records of one file, held in memory."""

    def __init__(self, path, records, size):
        self.size = size
        self.data = os.urandom(records * size)

    def read(self, record):
        return self.data[record * self.size:(record + 1) * self.size]
'''


def storage(place: Place, wait: str, constants: list[str]) -> None:
    parts = place.parts
    parts.imports |= {"os", "pathlib"}
    parts.constants.append("RECORD_BYTES = 4096")
    parts.init.append('self.store = Store(pathlib.Path(__file__).with_name("records.bin"), 2048, RECORD_BYTES)')
    if place.is_cured:
        parts.imports.discard("random")
        parts.helpers.append(LOCAL)
    else:
        parts.imports.add("time")
        parts.constants += constants
        head, body = STORE.format(wait=wait).split("    def read")
        parts.helpers.append(head + place.guilty("    def read" + body, "time.sleep"))
    read = "record = self.store.read(index % 2048)"
    parts.methods = fetch(read if place.is_cured else f"{read}  #@{place.number}",
                          "return self.inputs[index], self.labels[index], record[0]")
    takes_three(parts)


def shared_lock(place: Place) -> None:
    """All workers go through one lock, and what it guards takes its time."""
    parts = place.parts
    parts.init.append("self.offsets = list(range(length))")
    if not place.is_cured:
        parts.imports |= {"multiprocessing", "time"}
        parts.constants.append(f"LOOK_UP = {place.each_ms / 1000:.6f}  # seconds, of the archive's index")
        parts.init.append("self.lock = multiprocessing.Lock()")
        parts.methods = both(place.guilty(LOCKED, "with self.lock"), GET)
    else:
        parts.methods = both(UNLOCKED, GET)


LOCKED = '''
def offset_of(self, index):
    with self.lock:
        time.sleep(LOOK_UP)
        return self.offsets[index]
'''
UNLOCKED = '''
def offset_of(self, index):
    return self.offsets[index]
'''
GET = '''

def __getitem__(self, index):
    at = self.offset_of(index)
    return self.inputs[at], self.labels[at]
'''


def file_lock(place: Place) -> None:
    """Workers take turns at a file that one of them at a time may read, and parse it while they hold it."""
    parts = place.parts
    words = max(4, round(place.each_ms * WORDS_TOKENISED))
    parts.imports |= {"random", "os", "pathlib"}
    parts.constants.append(f"ENTRY_WORDS = {words}")
    parts.helpers += [WORDS, TOKENISE if place.is_cured else place.guilty(TOKENISE)]
    parts.init += [VOCABULARY, "self.vocabulary = vocabulary", "self.entries = [make_words(ENTRY_WORDS, entry) for entry in range(64)]"]
    if place.is_cured:
        parts.imports -= {"os", "pathlib"}
        parts.init.append("self.sizes = [len(tokenise(entry, vocabulary)) for entry in self.entries]")
        parts.methods = fetch("size = self.sizes[index % 64]", "return self.inputs[index], self.labels[index], size")
    else:
        parts.imports.add("fcntl")
        parts.init += ['self.path = pathlib.Path(__file__).with_name("index.lock")', "self.file = None"]
        parts.methods = both(place.guilty(LOCKED_FILE, "fcntl.LOCK_EX"), fetch(
            f"size = self.size_of(index % 64)  #@{place.number}", "return self.inputs[index], self.labels[index], size"))
    takes_three(parts)


LOCKED_FILE = '''
def size_of(self, entry):
    if self.file is None:
        self.file = os.open(self.path, os.O_CREAT | os.O_RDWR)
    fcntl.flock(self.file, fcntl.LOCK_EX)
    try:
        return len(tokenise(self.entries[entry], self.vocabulary))
    finally:
        fcntl.flock(self.file, fcntl.LOCK_UN)

'''


def handing_over(place: Place) -> None:
    """Workers hand over large pictures, of which the training takes a small part."""
    parts = place.parts
    side = place.random.choice((160, 192))
    stride = side // 32
    parts.constants += [f"FULL_SIDE = {side}", f"STRIDE = {stride}"]
    parts.inputs = "torch.rand(256, 3, FULL_SIDE, FULL_SIDE, generator=generator)"
    small = "[:, ::STRIDE, ::STRIDE]"
    if place.is_cured:
        parts.methods = fetch(f"return self.inputs[index % 256]{small}.contiguous(), self.labels[index]")
    else:
        parts.methods = fetch(place.line("return self.inputs[index % 256], self.labels[index]"))
        parts.batch_inputs = "inputs[:, :, ::STRIDE, ::STRIDE]"


def takes_three(parts: Parts) -> None:
    """The loader has a third part, which the training leaves alone."""
    parts.unpack = "inputs, labels, _"


def fetch(*lines: str) -> str:
    return "def __getitem__(self, index):\n" + "\n".join(f"    {line}" for line in lines)


def both(first: str, second: str) -> str:
    return first.strip("\n") + "\n\n" + second.strip("\n")
