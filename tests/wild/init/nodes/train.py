"""Its settings are attributes of a config, whose parts come from classes; a line sets them as --part.name=value."""
import sys

import torch
from parts import Node, Trainer


def defaults():
    C = Node()
    C.system = Node()
    C.system.seed = 7
    C.trainer = Trainer.defaults()
    C.trainer.rate = 5e-4
    return C


config = defaults()
config.merge(sys.argv[1:])
torch.manual_seed(config.system.seed)
Trainer(config.trainer).run()
