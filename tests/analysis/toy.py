"""An embedder with vectors chosen by the test, and tiny datasets with known scores."""

import lzma
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from elmore.bilm.softmax import Softmax
from elmore.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "The", "bank"])
SETS = ["senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015"]
_INDEX = "bass%1:07:01:: 04986883 1 2\nbass%1:05:00:: 02566109 2 0\ncod%1:05:00:: 02522399 1 1\n"


class ToyEmbedder:
    """The vectors of a word are looked up in a table: one per layer."""

    def __init__(self, table: Mapping[str, Sequence[Sequence[float]]]) -> None:
        self.table = {word: np.array(layers, np.float32) for word, layers in table.items()}
        self.num_layers, self.dim = next(iter(self.table.values())).shape

    def stream(self, sentences: Iterable[list[str]]) -> Iterator[tuple[list[str], np.ndarray]]:
        zero = np.zeros((self.num_layers, self.dim), np.float32)
        for tokens in sentences:
            yield tokens, np.stack([self.table.get(token, zero) for token in tokens], axis=1)


def at_angle(*degrees: float) -> list[list[float]]:
    """Return unit vectors, one per layer, at these angles to (1, 0)."""
    return [[float(np.cos(a)), float(np.sin(a))] for a in np.radians(degrees)]


def uniform_softmax(dim: int) -> Softmax:
    """Return a softmax that gives all words of `VOCABULARY` the same probability."""
    softmax = Softmax(dim=dim, vocab_size=len(VOCABULARY))
    torch.nn.init.zeros_(softmax.weight)
    return softmax


def write_wsd(folder: Path) -> None:
    """Write data whose nearest sense is always right, and the first sense in one of five sets."""
    _write_text(folder / "semcor", "bass", "bass%1:05:00::")
    (folder / "index.sense.xz").write_bytes(lzma.compress(_INDEX.encode()))
    sets = folder / "Evaluation_Datasets"
    for name in SETS:
        lemma, sense = ("cod", "cod%1:05:00::") if name == SETS[0] else ("bass", "bass%1:05:00::")
        _write_text(sets / name / name, lemma, sense)
    shutil.make_archive(str(sets), "xztar", folder, sets.name)
    shutil.rmtree(sets)


def _write_text(path: Path, lemma: str, sense: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    instance = f'<instance id="d0.s0.t0" lemma="{lemma}" pos="NOUN">{lemma}</instance>'
    data = f"<corpus>\n<sentence>\n<wf>A</wf>\n{instance}\n</sentence>\n</corpus>\n"
    path.with_name(path.name + ".data.xml").write_text(data)
    path.with_name(path.name + ".gold.key.txt").write_text(f"d0.s0.t0 {sense}\n")


def write_pos(folder: Path) -> None:
    """Write a treebank with a single tag."""
    folder.mkdir(parents=True)
    for name in ("train", "dev", "test"):
        (folder / f"en-{name}.conllu").write_text("1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n\n")
