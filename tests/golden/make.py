"""Compute the golden vectors with AllenNLP, bilm-tf and simple_elmo.

Each program needs a separate environment, without elmore. From the root of the repository:

    pip install torch==2.13.0 h5py && pip install --no-deps allennlp==2.10.1
    python -m tests.golden.make allennlp

    pip install tensorflow==2.15.1 h5py && pip install --no-deps bilm==0.1.post5
    python -m tests.golden.make bilm_tf

    pip install tensorflow==2.15.1 simple-elmo==0.9.2
    python -m tests.golden.make simple_elmo

bilm-tf is TensorFlow 1 graph code; it runs unchanged on `tensorflow.compat.v1`.
"""

import sys
import tempfile
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tests.golden.models import (
    BATCHES,
    MIX_WEIGHTS,
    MODELS,
    READABLE,
    SAME_LENGTH,
    SENTENCES,
    SIMPLE_ELMO_BATCH,
    SIMPLE_ELMO_MODELS,
    digest,
    stored_dims,
)
from tests.oracles.releases import Release, write_release

Batch = list[list[str]]


class Program(NamedTuple):
    """A released program with the weights of one model."""

    embed: Callable[[Batch], list[np.ndarray]]
    """All layers of each sentence: (J, W, D). The program keeps the state for the next call."""
    reset: Callable[[], None]
    mixes: dict[str, Callable[[Batch], list[np.ndarray]]]
    """Weighted sums of the layers of each sentence: (W, D)."""


class _StubModule(ModuleType):
    """Replaces a package that AllenNLP imports but its biLM does not use."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Stub


class _Stub:
    """A class that can be called, subclassed, subscripted and used as a decorator."""

    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def __call__(self, *args: object, **_: object) -> object:
        return args[0] if args and callable(args[0]) else self

    def __class_getitem__(cls, item: object) -> type:
        return cls

    def __getattr__(self, name: str) -> "_Stub":
        return self


class _StubFinder(MetaPathFinder, Loader):
    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name.split(".")[0] == "allennlp":
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...


def allennlp(release: Release) -> Program:
    """AllenNLP's `_ElmoBiLm`, and its `Elmo` with fixed mix weights."""
    import torch

    finder = _StubFinder()
    sys.meta_path.append(finder)
    try:
        from allennlp.modules import elmo, elmo_lstm
    finally:
        sys.meta_path.remove(finder)
    elmo.cached_path = elmo_lstm.cached_path = str  # the files are local
    files = str(release.options_file), str(release.weights_file)
    bilm = elmo._ElmoBiLm(*files).eval()

    @torch.inference_mode()
    def embed(batch: Batch) -> list[np.ndarray]:
        layers = torch.stack(bilm(elmo.batch_to_ids(batch))["activations"])  # (J, B, T, D)
        return [layers[:, b, 1 : len(words) + 1].numpy() for b, words in enumerate(batch)]

    def mix(**options: Any) -> Callable[[Batch], list[np.ndarray]]:
        module = elmo.Elmo(*files, 1, scalar_mix_parameters=MIX_WEIGHTS, **options).eval()

        @torch.inference_mode()
        def run(batch: Batch) -> list[np.ndarray]:
            output = module(elmo.batch_to_ids(batch))
            rows = zip(output["elmo_representations"][0], output["mask"].sum(dim=1), strict=True)
            return [row[:length].numpy() for row, length in rows]

        return run

    mixes = {}
    if bilm.num_layers == len(MIX_WEIGHTS):
        mixes = {
            "mix": mix(),
            "mix, layer norm": mix(do_layer_norm=True),
            "mix, boundaries": mix(keep_sentence_boundaries=True),
        }
    return Program(embed, bilm._elmo_lstm.reset_states, mixes)


def bilm_tf(release: Release) -> Program:
    """bilm-tf's `BidirectionalLanguageModel`, and its `weight_layers` with our mix weights."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    sys.modules["tensorflow"] = tf
    import bilm

    tf.reset_default_graph()
    vocabulary = release.options_file.parent / "words.txt"
    vocabulary.write_text("\n".join(release.vocabulary or ["<S>", "</S>", "<UNK>"]))
    files = str(release.options_file), str(release.weights_file)
    if release.vocabulary:
        batcher = bilm.TokenBatcher(str(vocabulary))
        ids = tf.placeholder("int32", shape=(None, None))
        model = bilm.BidirectionalLanguageModel(
            *files, use_character_inputs=False, embedding_weight_file=files[1]
        )
    else:
        width = release.options["char_cnn"]["max_characters_per_token"]
        batcher = bilm.Batcher(str(vocabulary), width)
        ids = tf.placeholder("int32", shape=(None, None, width))
        model = bilm.BidirectionalLanguageModel(*files)
    ops = model(ids)
    mixes = {}
    if ops["lm_embeddings"].shape[1] == len(MIX_WEIGHTS):
        mixes = {
            "mix": bilm.weight_layers("plain", ops, l2_coef=0.0),
            "mix, layer norm": bilm.weight_layers("normed", ops, l2_coef=0.0, do_layer_norm=True),
            "mix, top": bilm.weight_layers("top", ops, use_top_only=True),
        }
    reset = tf.global_variables_initializer()
    set_mixes = [
        tf.assign(variable, MIX_WEIGHTS)
        for variable in tf.global_variables()
        if variable.name.endswith("ELMo_W:0")
    ]
    session = tf.Session()

    def start() -> None:
        session.run(reset)
        session.run(set_mixes)

    def embed(batch: Batch) -> list[np.ndarray]:
        rows = session.run(ops["lm_embeddings"], {ids: batcher.batch_sentences(batch)})
        return [row[:, : len(words)] for row, words in zip(rows, batch, strict=True)]

    def run_mix(op: Any) -> Callable[[Batch], list[np.ndarray]]:
        def run(batch: Batch) -> list[np.ndarray]:
            rows = session.run(op["weighted_op"], {ids: batcher.batch_sentences(batch)})
            return [row[: len(words)] for row, words in zip(rows, batch, strict=True)]

        return run

    return Program(embed, start, {name: run_mix(op) for name, op in mixes.items()})


def vectors(program: Program, name: str) -> dict[str, np.ndarray]:
    """Return the vectors of all words, with and without state carried between batches."""
    arrays = {}
    for kind in ("carried", "fresh"):
        program.reset()
        sentences = []
        for batch in BATCHES:
            if kind == "fresh":
                program.reset()
            sentences += program.embed(batch)
        arrays[f"{name}/{kind}"] = stored_dims(np.concatenate(sentences, axis=1), name)
    if name == "usual":
        for kind, mix in program.mixes.items():
            program.reset()
            mixed = [sentence for batch in BATCHES for sentence in mix(batch)]
            arrays[f"{name}/{kind}"] = np.concatenate(mixed)
    return arrays


def simple_elmo(release: Release, name: str) -> dict[str, np.ndarray]:
    """Return the vectors of simple_elmo: of calls with and without warm-up, and of two calls.

    Its averages over words are stored for sentences without padding only.
    """
    import tensorflow.compat.v1 as tf
    from simple_elmo import ElmoModel, weight_layers

    arrays = {}

    def store(kind: str, vectors: np.ndarray) -> None:
        rows = zip(vectors, SENTENCES, strict=True)
        words = [row[..., : len(words), :] for row, words in rows]
        arrays[f"{name}/{kind}"] = np.concatenate(words, axis=-2).astype(np.float32)

    with tf.Graph().as_default() as graph:
        model = ElmoModel()
        model.load(str(release.options_file.parent), max_batch_size=SIMPLE_ELMO_BATCH)
        for layers in ("average", "top", "all"):
            store(layers, model.get_elmo_vectors(SENTENCES, layers=layers))
        store("no warm-up", model.get_elmo_vectors(SENTENCES, warmup=False))
        for layers in ("average", "top"):
            average = model.get_elmo_vector_average(SAME_LENGTH, layers=layers)
            arrays[f"{name}/mean, {layers}"] = average
        session = tf.Session(graph=graph)
        with session.as_default():
            model.elmo_sentence_input = weight_layers("input", model.sentence_embeddings_op)
            session.run(tf.global_variables_initializer())
        model.get_elmo_vectors(SENTENCES, session=session)
        store("second call", model.get_elmo_vectors(SENTENCES, warmup=False, session=session))
    return arrays


def main(program: str) -> None:
    """Write the vectors of one program next to this file."""
    arrays: dict[str, np.ndarray] = {}
    for name in SIMPLE_ELMO_MODELS if program == "simple_elmo" else READABLE[program]:
        with tempfile.TemporaryDirectory() as folder:
            release = write_release(Path(folder), MODELS[name])
            match program:
                case "simple_elmo":
                    arrays |= simple_elmo(release, name)
                case "allennlp":
                    arrays |= vectors(allennlp(release), name)
                case "bilm_tf":
                    arrays |= vectors(bilm_tf(release), name)
            arrays[f"{name}/digest"] = np.array(digest(release))
    np.savez_compressed(Path(__file__).with_name(f"{program}.npz"), **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
