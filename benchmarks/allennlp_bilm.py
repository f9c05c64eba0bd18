"""AllenNLP's biLM with the weights of an elmore model, if AllenNLP is installed.

AllenNLP's dependencies conflict with current PyTorch versions. Its biLM needs none of them, so
install it without dependencies:

    pip install --no-deps allennlp==2.10.1

Other packages that it imports are replaced by stubs.
"""

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

import elmore
from elmore.checkpoint.hdf5 import write_hdf5


class _StubModule(ModuleType):
    """A module whose attributes are all `_Stub`."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Stub


class _Stub:
    """A class that can be called, subclassed and used as a decorator, and does nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def __call__(self, *args: object, **_: object) -> object:
        return args[0] if args and callable(args[0]) else self

    def __class_getitem__(cls, item: object) -> type:
        return cls

    def __getattr__(self, name: str) -> "_Stub":
        return self


class _StubFinder(MetaPathFinder, Loader):
    """Replaces packages by stubs, except AllenNLP, the standard library and imported packages."""

    def __init__(self) -> None:
        imported = {name.split(".")[0] for name in sys.modules}
        self._real = {"allennlp", *imported, *sys.stdlib_module_names}

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name.split(".")[0] in self._real:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...


def find_allennlp(bilm: elmore.BiLM) -> Callable[[list[list[str]]], list[Tensor]] | None:
    """Return a function that runs AllenNLP's biLM with these weights, or None without AllenNLP."""
    if importlib.util.find_spec("allennlp") is None:
        return None
    finder = _StubFinder()
    sys.meta_path.insert(0, finder)  # first: an installed package might fail to import a stub
    try:
        from allennlp.modules import elmo, elmo_lstm
    finally:
        sys.meta_path.remove(finder)
    elmo.cached_path = elmo_lstm.cached_path = str  # the files are local
    with tempfile.TemporaryDirectory() as folder:
        weights, options = Path(folder) / "weights.hdf5", Path(folder) / "options.json"
        write_hdf5(bilm, weights, options)
        allennlp_bilm = elmo._ElmoBiLm(str(options), str(weights)).eval()

    @torch.inference_mode()
    def run(sentences: list[list[str]]) -> list[Tensor]:
        return allennlp_bilm(elmo.batch_to_ids(sentences))["activations"]

    return run
