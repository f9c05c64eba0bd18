"""ELMo (Peters et al. 2018): contextual word vectors.

    import elmore

    elmo = elmore.load()  # the included English model
    vectors = elmo.embed([["He", "sat", "by", "the", "bank"]])

The names in `__all__` are imported on first use, so `import elmore` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elmore.threads import limit_spinning

if TYPE_CHECKING:
    from elmore import tasks as tasks
    from elmore.bilm.config import BiLMConfig as BiLMConfig
    from elmore.bilm.model import BiLM as BiLM
    from elmore.embedder import Embedder as Embedder
    from elmore.embedder import load as load
    from elmore.errors import InputError as InputError
    from elmore.mix import Elmo as Elmo
    from elmore.mix import ScalarMix as ScalarMix
    from elmore.mix import max_pool as max_pool
    from elmore.mix import mean_pool as mean_pool
    from elmore.text.characters import encode_sentences as encode_sentences
    from elmore.text.tokenize import tokenize as tokenize
    from elmore.vectors.embed_fasta import embed_fasta as embed_fasta
    from elmore.vectors.embed_file import embed_file as embed_file
    from elmore.vectors.read import read_vectors as read_vectors

__version__ = "0.1.0"

_MODULES = {
    "BiLM": "elmore.bilm.model",
    "BiLMConfig": "elmore.bilm.config",
    "Elmo": "elmore.mix",
    "Embedder": "elmore.embedder",
    "InputError": "elmore.errors",
    "ScalarMix": "elmore.mix",
    "embed_fasta": "elmore.vectors.embed_fasta",
    "embed_file": "elmore.vectors.embed_file",
    "encode_sentences": "elmore.text.characters",
    "load": "elmore.embedder",
    "max_pool": "elmore.mix",
    "mean_pool": "elmore.mix",
    "read_vectors": "elmore.vectors.read",
    "tasks": "elmore.tasks",
    "tokenize": "elmore.text.tokenize",
}

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'elmore' has no attribute {name!r}")
    limit_spinning()
    module = import_module(_MODULES[name])
    return module if name == "tasks" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
