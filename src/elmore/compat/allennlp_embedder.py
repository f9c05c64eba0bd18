"""AllenNLP 0.9's `ElmoEmbedder`: sentences to NumPy arrays, text files to HDF5 files.

B sentences, W words, J layers, D dim.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from elmore.atomic import atomic_file
from elmore.bilm.model import BiLM
from elmore.checkpoint.hdf5 import read_hdf5
from elmore.compat.stateful import StatefulBiLM
from elmore.device import Device, find_device
from elmore.errors import InputError
from elmore.inference import new_engine
from elmore.inference.layers import select_layers
from elmore.inference.padded import PaddedRunner
from elmore.progress import Progress, track
from elmore.schema import INTEGER, at_least, check, one_of
from elmore.text.characters import encode_sentences


class ElmoEmbedder:
    """`allennlp.commands.elmo.ElmoEmbedder` (version 0.9): sentences to NumPy arrays.

    Args:
        options_file: options.json.
        weight_file: HDF5 weights.
        cuda_device: Index of a GPU; -1 for the CPU. Names such as `cuda:1` are accepted, too.
        stateful: Start each batch from the state of the previous one, as AllenNLP does.
    """

    def __init__(
        self,
        options_file: Path | str | None = None,
        weight_file: Path | str | None = None,
        cuda_device: int | Device = -1,
        *,
        stateful: bool = True,
    ) -> None:
        if isinstance(cuda_device, int):
            cuda_device = "cpu" if cuda_device < 0 else f"cuda:{cuda_device}"
        device = find_device(cuda_device)
        bilm = read_files(options_file, weight_file).to(device)
        self._max_characters = bilm.config.max_characters
        self.elmo_bilm = StatefulBiLM(PaddedRunner(new_engine(bilm)), stateful=stateful)

    def batch_to_embeddings(
        self, batch: Sequence[Sequence[str]]
    ) -> tuple[Float[Tensor, "B J W D"], Bool[Tensor, "B W"]]:
        """Return all layers of a batch and the mask of its words."""
        tokens = encode_sentences(batch, self._max_characters)
        layers = self.elmo_bilm(*tokens)
        words = tokens.word_mask.to(layers.device)
        return layers[:, :, 1:-1] * words[:, None, :, None], words

    def embed_sentence(self, sentence: Sequence[str]) -> Float[np.ndarray, "J W D"]:
        """Return all layers of one sentence."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Float[np.ndarray, "J W D"]]:
        """Return all layers of each sentence of one batch."""
        layers, _ = self.batch_to_embeddings(batch)
        rows = layers.cpu().numpy()
        return [row[:, : len(words)].copy() for row, words in zip(rows, batch, strict=True)]

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = 64
    ) -> Iterator[Float[np.ndarray, "J W D"]]:
        """Yield all layers of each sentence, computed in batches."""
        check("batch_size", batch_size, at_least(1), INTEGER)
        rest = iter(sentences)
        while batch := list(islice(rest, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: Iterable[str],
        output_file_path: Path | str,
        output_format: Literal["all", "top", "average"] = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
        *,
        progress: Progress | None = None,
    ) -> None:
        """Embed tokenized sentences, one per line, and write the vectors to an HDF5 file.

        Args:
            input_file: An open text file, or any iterable of lines.
            output_file_path: The HDF5 file.
            output_format: All layers, the top layer, or the average of all layers.
            batch_size: Sentences per batch.
            forget_sentences: Do not write the dataset `sentence_to_index`.
            use_sentence_keys: Use sentences as keys instead of line numbers.
            progress: Shows progress, such as `tqdm.tqdm`.

        Raises:
            InputError: If a line is blank, a sentence cannot be a key, or the output would replace
                the input.
        """
        check("output_format", output_format, one_of("all", "top", "average"))
        check("batch_size", batch_size, at_least(1), INTEGER)
        check_output(Path(output_file_path), getattr(input_file, "name", None))
        lines = [line.strip() for line in _check_lines(input_file)]
        if "" in lines:
            raise InputError(f"line {lines.index('') + 1} is blank; expected one sentence per line")
        keys = lines if use_sentence_keys else list(map(str, range(len(lines))))
        if len(set(keys)) < len(keys) or any("/" in key for key in keys):
            raise InputError(
                "use_sentence_keys requires distinct sentences without '/', which HDF5 reserves; "
                "use line numbers as keys instead"
            )
        vectors = self.embed_sentences((line.split() for line in lines), batch_size)
        with atomic_file(Path(output_file_path)) as path, h5py.File(path, "w") as file:
            shown = track(vectors, "sentences embedded", progress)
            for key, layers in zip(keys, shown, strict=True):
                file[key] = select_layers(torch.from_numpy(layers), output_format).numpy()
            if not forget_sentences and not use_sentence_keys:
                index = dict(zip(lines, keys, strict=True))
                dtype = h5py.string_dtype("utf-8")
                file.create_dataset("sentence_to_index", data=[json.dumps(index)], dtype=dtype)


def check_output(output: Path, *inputs: object) -> None:
    """Raise `InputError` if the output would replace an input file; ignore what is not a path."""
    # An open file may have a number as its name.
    paths = (Path(source) for source in inputs if isinstance(source, str | PathLike))
    if any(output.exists() and path.exists() and output.samefile(path) for path in paths):
        raise InputError(f"{output} is an input file; choose another output file")


def _check_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines; raise `TypeError` unless they are strings."""
    how = 'with open("sentences.txt", encoding="utf-8") as file: embedder.embed_file(file, ...)'
    if isinstance(lines, str | bytes | PathLike):
        raise TypeError(f"expected an open text file, got the path {str(lines)!r}. Open it: {how}")
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, str):
            raise TypeError(
                f"line {number} is {type(line).__name__}; expected a string. Open files as text: "
                f"{how}"
            )
        yield line


def read_files(options: Path | str | None, weights: Path | str | None) -> BiLM:
    """Load the two files of a released model; raise `InputError` unless both are local files."""
    if options is None or weights is None:
        raise InputError(
            "expected options_file and weight_file. AllenNLP downloads the original ELMo if they "
            "are missing; elmore downloads nothing, so download the two files and pass their paths"
        )
    for file in (options, weights):
        if not isinstance(file, str | PathLike):
            raise TypeError(f"expected the path of a file, got {type(file).__name__}")
        if str(file).startswith(("http://", "https://", "s3://")):
            raise InputError(f"{file} is a URL; download the file first and pass its path")
    if str(weights).endswith((".th", ".tar.gz")):
        raise InputError(
            f"{weights} is a trained model of AllenNLP; expected the HDF5 weights of ELMo. To use "
            "a fine-tuned ELMo, load weights.th into your model with elmore.compat.allennlp.Elmo: "
            "model.load_state_dict(torch.load('weights.th', weights_only=True))"
        )
    return read_hdf5(Path(weights), Path(options))
