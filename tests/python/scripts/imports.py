"""Prints the parts of the interpreter that the hook may change, after `import torch`."""

import importlib.util
import sys

spec = importlib.util.find_spec("torch")
print("loader", type(spec.loader).__name__)
import torch  # noqa: E402

print("sitecustomize", getattr(sys.modules.get("sitecustomize"), "OWN", None))
print("backward", torch.autograd.backward.__code__.co_filename.endswith("torch/autograd/__init__.py"))
print("finders", [type(finder).__name__ for finder in sys.meta_path if type(finder).__module__.startswith("gputune")])
print("reload", importlib.util.find_spec("torch").loader.get_filename("torch") == torch.__file__)
