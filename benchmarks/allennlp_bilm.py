"""AllenNLP's biLM on the weights and sentences of another benchmark, if AllenNLP is there.

Its dependencies no longer install beside today's PyTorch, and its biLM needs none of them:

    pip install --no-deps allennlp==2.10.1

What it imports beyond that is replaced by names without content.
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


class _Hollow(ModuleType):
    """A module in which every name is a class that does nothing."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing


class _Nothing:
    """Can be called, subclassed and decorated with, and that is all that an import does."""

    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def __call__(self, *args: object, **_: object) -> object:
        return args[0] if args and callable(args[0]) else self

    def __class_getitem__(cls, item: object) -> type:
        return cls

    def __getattr__(self, name: str) -> "_Nothing":
        return self


class _Stand(MetaPathFinder, Loader):
    """Finds a hollow module for what nobody else has found."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name.split(".")[0] == "allennlp":
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Hollow(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...


def find_allennlp(bilm: elmore.BiLM) -> Callable[[list[list[str]]], list[Tensor]] | None:
    """Return a function that runs AllenNLP's biLM with our weights, or None without AllenNLP."""
    if importlib.util.find_spec("allennlp") is None:
        return None
    stand = _Stand()
    sys.meta_path.append(stand)
    try:
        from allennlp.modules import elmo, elmo_lstm
    finally:
        sys.meta_path.remove(stand)
    elmo.cached_path = elmo_lstm.cached_path = str  # our files are here already
    with tempfile.TemporaryDirectory() as name:
        weights, options = Path(name) / "weights.hdf5", Path(name) / "options.json"
        write_hdf5(bilm, weights, options)
        theirs = elmo._ElmoBiLm(str(options), str(weights)).eval()

    @torch.inference_mode()
    def run(sentences: list[list[str]]) -> list[Tensor]:
        return theirs(elmo.batch_to_ids(sentences))["activations"]

    return run
