"""Compute the golden vectors with seqvec and the version of AllenNLP that it needs.

    pip install torch==2.13.0 h5py tqdm && pip install --no-deps seqvec==0.4.1 allennlp==0.9.0
    python -m tests.golden.make_seqvec

Other packages that AllenNLP imports are replaced by stubs; its `ElmoEmbedder` uses none of them.
"""

import importlib.util
import sys
import tempfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import h5py  # noqa: F401
import numpy as np
import torch  # noqa: F401
import tqdm  # noqa: F401

from tests.golden.make import _StubFinder
from tests.golden.models import digest
from tests.golden.proteins import FASTA, MODEL, RUNS, stored_dims
from tests.oracles.releases import write_release


class _Finder(_StubFinder):
    """Replaces all packages by stubs that are not imported above."""

    def __init__(self) -> None:
        imported = {name.split(".")[0] for name in sys.modules}
        self._real = {"allennlp", "seqvec", *imported, *sys.stdlib_module_names}

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return None if name.split(".")[0] in self._real else super().find_spec(name)


def import_seqvec() -> ModuleType:
    """Import seqvec with AllenNLP's `ElmoEmbedder`, but without AllenNLP's other commands."""
    allennlp = importlib.util.find_spec("allennlp")
    assert allennlp is not None, "install allennlp==0.9.0"
    assert allennlp.submodule_search_locations is not None
    commands = ModuleType("allennlp.commands")
    commands.__path__ = [f"{allennlp.submodule_search_locations[0]}/commands"]
    overrides = ModuleType("overrides")
    overrides.overrides = lambda function: function  # type: ignore[attr-defined]
    sys.modules |= {"allennlp.commands": commands, "overrides": overrides}
    finder = _Finder()
    sys.meta_path.insert(0, finder)  # first: an installed package might fail to import a stub
    try:
        from seqvec import seqvec
    finally:
        sys.meta_path.remove(finder)
    return seqvec


def main() -> None:
    """Write the vectors next to this file."""
    seqvec = import_seqvec()
    arrays: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        release = write_release(Path(folder), MODEL)
        arrays["digest"] = np.array(digest(release))
        fasta = Path(folder) / "proteins.fasta"
        fasta.write_bytes(FASTA.encode())
        for run, options in RUNS.items():
            results = dict(seqvec.get_embeddings(fasta, Path(folder), cpu=True, **options))
            arrays[f"{run}/ids"] = np.array(list(results))
            for key, vectors in results.items():
                if vectors.size and not np.isnan(vectors).any():  # not of the empty protein
                    arrays[f"{run}/{key}"] = stored_dims(vectors)
    np.savez_compressed(Path(__file__).with_name("seqvec.npz"), **arrays)


if __name__ == "__main__":
    main()
