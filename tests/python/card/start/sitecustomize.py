"""Installs the stand-in in the modules of torch: in each module right after it is loaded, before other code can use it."""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


class _Finder:
    """Calls the function of a module, in `after`, once the module is loaded."""

    def __init__(self, after):
        self._after = after

    def find_spec(self, name, path=None, target=None):
        after = self._after.get(name)
        if after is None:
            return None
        del self._after[name]
        for finder in sys.meta_path:
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec is not None else None
            if spec is not None:
                self._extend(spec, after)
                return spec
        return None

    @staticmethod
    def _extend(spec, after):
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            after(module)

        spec.loader.exec_module = exec_module


def _with_cuda(module):
    from card import cuda

    cuda.install(module)


def _with_accelerator(module):
    from card import cuda

    cuda.install_accelerator(module)


def _with_tensors(module):
    from card import cuda

    cuda.install_pinning(sys.modules["torch"])


def _with_compiler(module):
    from card import inductor

    inductor.install(module)


sys.meta_path.insert(
    0,
    _Finder(
        {
            "torch.cuda": _with_cuda,
            "torch.accelerator": _with_accelerator,
            "torch.functional": _with_tensors,
            "torch._inductor.compile_fx": _with_compiler,
        }
    ),
)
