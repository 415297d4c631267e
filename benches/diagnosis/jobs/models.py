"""Models that a script may train: what a step of each costs is roughly known, and diseases are sized by it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Model:
    """A model as it is written into a script."""

    name: str
    batch: int
    about_ms: float  # a step on one core of the machine of the kept results; only sizes are taken from it
    inputs: str  # of `length` samples, an expression
    constants: tuple[str, ...]
    code: str
    make: str
    forward_share: float = 0.35  # of a step


MLP = '''
def build_model():
    layers = [nn.Linear(FEATURES, WIDTH), nn.ReLU()]
    for _ in range(DEPTH - 1):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))
'''

CNN = '''
class ConvNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(2 * channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(2 * channels, CLASSES)

    def forward(self, images):
        return self.head(self.features(images).flatten(1))
'''

ENCODER = '''
class TextClassifier(nn.Module):
    def __init__(self, dim, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, dim)
        layer = nn.TransformerEncoderLayer(dim, nhead=4, dim_feedforward=2 * dim, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)).mean(dim=1))
'''


def mlp(width: int, depth: int, batch: int, about_ms: float) -> Model:
    return Model("features", batch, about_ms, "torch.randn(length, FEATURES, generator=generator)",
                 ("FEATURES = 512", f"WIDTH = {width}", f"DEPTH = {depth}"), MLP, "build_model()")


def cnn(channels: int, batch: int, about_ms: float) -> Model:
    return Model("images", batch, about_ms, "torch.rand(length, 3, SIDE, SIDE, generator=generator)",
                 ("SIDE = 32",), CNN, f"ConvNet({channels})")


def encoder(dim: int, layers: int, batch: int, about_ms: float) -> Model:
    return Model("tokens", batch, about_ms, "torch.randint(VOCABULARY, (length, LENGTH), generator=generator)",
                 ("VOCABULARY = 2000", "LENGTH = 64"), ENCODER, f"TextClassifier({dim}, {layers})")


SMALL = (mlp(512, 2, 64, 4.5), mlp(512, 3, 64, 7.0), mlp(1024, 2, 32, 9.0), cnn(16, 24, 6.0), encoder(64, 1, 16, 8.0))
LARGE = (mlp(1024, 2, 128, 18.0), cnn(16, 64, 16.0), encoder(64, 1, 32, 14.0), encoder(64, 2, 32, 26.0))
LARGEST = (encoder(64, 2, 32, 26.0), encoder(64, 2, 48, 38.0))  # beside which it costs nothing to have batches handed over
PICTURES = (cnn(4, 24, 1.5), cnn(8, 24, 3.0))
LAYERS = (mlp(64, 12, 2, 1.5), mlp(128, 10, 2, 1.5), encoder(16, 4, 2, 3.0))  # many and small
WEIGHTS = (mlp(1536, 2, 4, 8.0), mlp(2048, 2, 4, 13.0))  # many for little computing
