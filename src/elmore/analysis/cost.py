"""What a frozen encoder costs on a CPU: words per second, memory, parameters.

Each encoder is measured in a process of its own, so that its peak memory is its own:

    python -m elmore.analysis.cost MODEL sentences.txt
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float

from elmore.atomic import temporary_folder
from elmore.embedder import Dtype, Embedder, Precision, load
from elmore.errors import InputError
from elmore.inference.batches import Embedded
from elmore.tasks.transformer import TransformerEncoder, is_transformer
from elmore.tasks.vectors import WordVectors, read_word_vectors
from elmore.text.lines import read_lines
from elmore.text.sentences import Sentence
from elmore.text.tokenize import Tokenization

_WARM_UP = 0.1
"""Share of the sentences that are embedded before the clock starts."""


class Cost(NamedTuple):
    """Measurements of one encoder."""

    words_per_second: float
    megabytes: float | None
    """Peak memory of the process, with Python and PyTorch; None if the system does not tell."""

    parameters: int
    threads: int


class WordVectorEncoder:
    """Word vectors as an encoder with one layer; see `elmore.tasks.encoder.Encoder`.

    A word is looked up as it is, then in lower case; otherwise its vector is zero.
    """

    num_layers = 1
    tokenization: Tokenization | None = None
    weights_hash = ""

    def __init__(self, vectors: WordVectors) -> None:
        self.device = torch.device("cpu")
        self.dim = vectors.vectors.shape[1]
        self._vectors = np.concatenate([vectors.vectors, np.zeros((1, self.dim), np.float32)])
        self._row = {word: row for row, word in reversed(list(enumerate(vectors.words)))}

    @property
    def num_parameters(self) -> int:
        """Number of values in the table."""
        return self._vectors.size - self.dim

    def embed(self, sentences: Iterable[Sentence]) -> list[Float[np.ndarray, "1 W D"]]:
        """Return the vectors of each sentence."""
        return [vectors for _, vectors in self.stream(sentences)]

    def stream(
        self, sentences: Iterable[Sentence], *, dtype: Dtype = "float32"
    ) -> Iterator[Embedded]:
        """Yield tokens and vectors sentence by sentence."""
        for words in sentences:
            rows = [self._row.get(word, self._row.get(word.lower(), -1)) for word in words]
            yield Embedded(list(words), self._vectors[None, rows].astype(dtype))

    def free(self) -> None:
        """Nothing is cached."""


def measure_cost(name: str, model: Path | Embedder, sentences: Sequence[Sequence[str]]) -> Cost:
    """Measure an encoder in a new process.

    Args:
        name: Name of the encoder, for the error message.
        model: A biLM, or the path of a transformer or of a file of word vectors.
        sentences: Tokenized sentences to embed.

    Raises:
        InputError: If the process fails.
    """
    with temporary_folder() as folder:
        text = folder / "sentences.txt"
        text.write_text("".join(" ".join(words) + "\n" for words in sentences), encoding="utf-8")
        arguments: list[Path | str]
        if isinstance(model, Embedder):
            model.save(folder / "model")
            arguments = [folder / "model", text, model.precision]
        else:
            arguments = [model, text]
        command = [sys.executable, "-m", __name__, *map(str, arguments)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if process.returncode:
        reason = (process.stderr.strip() or "no output").splitlines()[-1]
        raise InputError(f"the cost of {name} cannot be measured: {reason}")
    return Cost(**json.loads(process.stdout))


def _measure(path: Path, text: Path, precision: str = "fp32") -> Cost:
    encoder = _load(path, precision)
    sentences = [line.split(" ") for line in read_lines(text)]
    first = int(_WARM_UP * len(sentences))
    for _ in encoder.stream(sentences[:first]):
        pass
    start = time.perf_counter()
    for _ in encoder.stream(sentences[first:]):
        pass
    seconds = time.perf_counter() - start
    megabytes = _peak_memory()  # before the parameters of a biLM are read again, to count them
    return Cost(
        words_per_second=sum(map(len, sentences[first:])) / seconds,
        megabytes=megabytes,
        parameters=(
            sum(p.numel() for p in encoder.bilm.parameters())
            if isinstance(encoder, Embedder)
            else encoder.num_parameters
        ),
        threads=torch.get_num_threads(),
    )


def _load(path: Path, precision: str) -> Embedder | TransformerEncoder | WordVectorEncoder:
    """Load an encoder to a CPU."""
    if path.is_file():
        return WordVectorEncoder(read_word_vectors(path))
    if is_transformer(path):
        return TransformerEncoder(path, device="cpu")
    return load(path, device="cpu", precision=cast("Precision", precision))


def _peak_memory() -> float | None:
    """Return the peak memory of this process in megabytes, on Linux.

    `resource.getrusage` would do on more systems, but its peak includes that of the parent process.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return None
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(peak[1]) / 1024 if peak else None


if __name__ == "__main__":
    model, text, *precision = sys.argv[1:]
    print(json.dumps(_measure(Path(model), Path(text), *precision)._asdict()))  # noqa: T201
