"""Embedder. Oracles: the plain biLM, one sentence at a time; invariants of batches and streams."""

import copy
import gc
import pickle
import random
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import elmore
from elmore.bilm.model import BiLM
from elmore.checkpoint.pretrained import Pretrained, read_pretrained
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.inference import cpu, word_cache
from elmore.text.characters import NUM_CHARACTERS, encode_sentences
from tests.cpu import needs_int8, needs_onednn, needs_onednn_bf16

SENTENCES = [
    ["He", "sat", "by", "the", "bank"],
    ["Banks", "fail"],
    [],
    ["the"] * 40,
    ["", "<S>", "x" * 100, "\u00e9\u4e2d\ud800"],
]


@torch.no_grad()
def run_bilm(bilm: BiLM, words: list[str]) -> np.ndarray:
    return bilm(*encode_sentences([words])).layers[0, :, 1:-1].numpy()


def random_sentences(count: int) -> list[list[str]]:
    rng = random.Random(0)
    words = [f"word{i}" for i in range(60)]
    return [rng.choices(words, k=rng.randrange(0, 30)) for _ in range(count)]


def test_vectors_equal_those_of_the_bilm(bilm: BiLM, embedder: Embedder) -> None:
    for words, vectors in zip(SENTENCES, embedder.embed(SENTENCES), strict=True):
        assert vectors.dtype == np.float32
        assert vectors.shape == (3, len(words), 32)
        np.testing.assert_allclose(vectors, run_bilm(bilm, words), atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "pick"),
    [
        ("top", lambda v: v[-1]),
        ("average", lambda v: v.mean(0)),
        ("sum", lambda v: v.sum(0)),
        (0, lambda v: v[0]),
        (1, lambda v: v[1]),
    ],
)
def test_selected_layers_equal_those_of_all_layers(embedder: Embedder, layers, pick) -> None:
    for selected, all_layers in zip(
        embedder.embed(SENTENCES, layers=layers), embedder.embed(SENTENCES), strict=True
    ):
        np.testing.assert_allclose(selected, pick(all_layers), atol=1e-6)


def test_repeated_calls_return_identical_vectors(embedder: Embedder) -> None:
    sentences = random_sentences(100)
    embedder.embed(random_sentences(7))  # an earlier call must not matter
    first, second = embedder.embed(sentences), embedder.embed(sentences)
    for a, b in zip(first, second, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("batch_words", [1, 50, 300, 100_000])
def test_vectors_do_not_depend_on_batches_or_order(embedder: Embedder, batch_words: int) -> None:
    sentences = random_sentences(60)
    expected = {i: embedder.embed([words])[0] for i, words in enumerate(sentences)}
    order = list(range(60))
    random.Random(1).shuffle(order)
    actual = embedder.embed([sentences[i] for i in order], batch_words=batch_words)
    for i, vectors in zip(order, actual, strict=True):
        np.testing.assert_allclose(vectors, expected[i], atol=1e-5)


def count_encoded_words(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each call of the token encoder appends its number of words."""
    encoded: list[int] = []
    engine = embedder._runner.engine
    encode = engine.encode

    def count(ids: torch.Tensor) -> torch.Tensor:
        encoded.append(len(ids.unique(dim=0)))
        return encode(ids)

    monkeypatch.setattr(engine, "encode", count)
    return encoded


def test_each_distinct_word_is_encoded_once_across_calls(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = count_encoded_words(embedder, monkeypatch)
    sentences = random_sentences(200)
    first = embedder.embed(sentences, batch_words=200)
    distinct = {word for words in sentences for word in words}
    assert sum(encoded) == len(distinct)
    in_reverse = embedder.embed(reversed(sentences), batch_words=300)
    embedder.word_vectors(sentences[0])
    assert sum(encoded) == len(distinct)
    for a, b in zip(first, reversed(in_reverse), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    embedder.word_vectors(["new"])
    assert sum(encoded) == len(distinct) + 1
    embedder.free()
    embedder.embed(sentences)
    assert sum(encoded) == 2 * len(distinct) + 1


@pytest.mark.usefixtures("packed_or_plain")
@pytest.mark.parametrize("parameter", ["forward_lstms.0.input.weight", "encode.embed.weight"])
def test_embedder_keeps_its_weights_until_refreshed(bilm: BiLM, parameter: str) -> None:
    """Oracle: the plain biLM, after its weights were changed in place."""
    embedder = Embedder(bilm, device="cpu")
    before = embedder.embed(SENTENCES)
    with torch.no_grad():
        bilm.get_parameter(parameter).mul_(1.5)
    for a, b in zip(embedder.embed(SENTENCES), before, strict=True):
        np.testing.assert_array_equal(a, b)
    stream = embedder.stream(SENTENCES)
    embedder.refresh()
    after = embedder.embed(SENTENCES)
    np.testing.assert_allclose(after[0], run_bilm(bilm, SENTENCES[0]), atol=1e-6)
    assert not np.array_equal(after[0], before[0])
    for (_, a), b in zip(stream, before, strict=True):  # started before the refresh
        np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("packed_or_plain")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_callers_model_is_not_changed(bilm: BiLM, precision) -> None:
    bilm.double().train()
    bilm.forward_lstms[0].requires_grad_(False)
    names = list(dict(bilm.named_modules()))
    before = {name: (p, p.clone(), p.requires_grad) for name, p in bilm.named_parameters()}
    embedder = Embedder(bilm, device="cpu", precision=precision)
    [vectors, *_] = embedder.embed(SENTENCES)
    embedder.embed(SENTENCES, carry_state=True)
    assert embedder.bilm is bilm
    assert list(dict(bilm.named_modules())) == names
    assert all(module.training for module in bilm.modules())
    for name, parameter in bilm.named_parameters():
        assert parameter is before[name][0]
        assert parameter.dtype == torch.float64
        assert torch.equal(parameter, before[name][1])
        assert parameter.requires_grad == before[name][2]
    bound = 1e-5 if precision == "fp32" else 0.05
    np.testing.assert_allclose(vectors, run_bilm(bilm.eval(), SENTENCES[0]), atol=bound)


@pytest.mark.usefixtures("packed_or_plain")
def test_models_loaded_in_inference_mode_can_embed(bilm: BiLM, tmp_path: Path) -> None:
    Embedder(bilm, device="cpu").save(tmp_path / "model")
    with torch.inference_mode():
        loaded = elmore.load(tmp_path / "model", device="cpu")
        for embedder in (loaded, Embedder(loaded.bilm, device="cpu"), loaded):
            [vectors, *_] = embedder.embed(SENTENCES)
            np.testing.assert_allclose(vectors, run_bilm(bilm, SENTENCES[0]), atol=1e-6)
    [vectors, *_] = loaded.embed([["another"], *SENTENCES[1:]])
    np.testing.assert_allclose(vectors, run_bilm(bilm, ["another"]), atol=1e-6)


@pytest.mark.usefixtures("packed_or_plain")
def test_threads_can_share_an_embedder(bilm: BiLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the same calls in sequence."""
    monkeypatch.setattr(word_cache, "_MAX_ROWS", 20)  # often full and replaced
    embedder = Embedder(bilm, device="cpu")
    sentences = random_sentences(60)
    calls = [sentences[i : i + 5] for i in range(0, 60, 5)]
    expected = [embedder.embed(call, carry_state=i % 3 == 0) for i, call in enumerate(calls)]
    barrier = threading.Barrier(4)

    def work(first: int) -> list[tuple[int, list[np.ndarray]]]:
        barrier.wait()
        return [
            (i, embedder.embed(calls[i], carry_state=i % 3 == 0, batch_words=50))
            for _ in range(3)
            for i in range(first, len(calls), 4)
        ]

    with ThreadPoolExecutor(4) as threads:
        for results in threads.map(work, range(4)):
            for i, vectors in results:
                for a, b in zip(vectors, expected[i], strict=True):
                    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_vectors_with_carried_state_own_their_memory(embedder: Embedder) -> None:
    """The iterator over sentences is the caller's code, so it must not run in inference mode."""

    def text() -> Iterator[list[str]]:
        for sentence in SENTENCES:
            assert not torch.is_inference_mode_enabled()
            yield sentence

    for layers in ("all", "top", 0):
        for vectors in embedder.embed(text(), layers=layers, carry_state=True):
            assert vectors.flags.owndata
            assert vectors.flags.c_contiguous


def test_interleaved_streams_do_not_interfere(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = random_sentences(40)
    expected = embedder.embed(sentences)
    monkeypatch.setattr(word_cache, "_MAX_ROWS", 10)  # often full and replaced
    embedder.refresh()
    first = embedder.stream(sentences, batch_words=20)
    second = embedder.stream(reversed(sentences), batch_words=30)
    pairs = list(zip(first, second, strict=True))
    for (a, b), c, d in zip(pairs, expected, reversed(expected), strict=True):
        np.testing.assert_allclose(a.vectors, c, atol=1e-5)
        np.testing.assert_allclose(b.vectors, d, atol=1e-5)


def test_strings_are_tokenized_and_lists_are_not(bilm: BiLM) -> None:
    embedder = Embedder(bilm)
    text = "He doesn't bank."
    [from_string] = embedder.stream([text])
    assert from_string.tokens == elmore.tokenize(text)
    [from_list] = embedder.stream([["He doesn't", "bank."]])
    assert from_list.tokens == ["He doesn't", "bank."]
    [whitespace] = Embedder(bilm, tokenizer="whitespace").stream([text])
    assert whitespace.tokens == text.split()


def test_carried_state_equals_that_of_the_bilm(bilm: BiLM, embedder: Embedder) -> None:
    state = None
    actual = embedder.embed(SENTENCES, carry_state=True)
    for words, vectors in zip(SENTENCES, actual, strict=True):
        with torch.no_grad():
            layers, state = bilm(*encode_sentences([words]), state)
        np.testing.assert_allclose(vectors, layers[0, :, 1:-1], atol=1e-6)
    repeated = embedder.embed(SENTENCES, carry_state=True)
    assert all(np.array_equal(a, b) for a, b in zip(actual, repeated, strict=True))


def test_empty_input_gives_empty_results(embedder: Embedder) -> None:
    assert embedder.embed([]) == []
    [empty] = embedder.embed([[]])
    assert empty.shape == (3, 0, 32)
    [blank] = embedder.embed(["  "], layers="top")
    assert blank.shape == (0, 32)


@given(st.lists(st.one_of(st.text(), st.lists(st.text(), max_size=5)), max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_can_be_embedded(embedder: Embedder, sentences: list) -> None:
    for tokens, vectors in embedder.stream(sentences):
        assert vectors.shape == (3, len(tokens), 32)
        assert np.isfinite(vectors).all()


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ("He sat", r"expected a list of sentences, got one string \('He sat'\)"),
        (None, "expected a list of sentences, got NoneType"),
        (b"He sat", "expected a list of sentences, got bytes"),
        (7, "expected a list of sentences, got int"),
        (Path("text.txt"), r"got the path text\.txt. To embed a file, use elmore\.embed_file"),
        ([["a"], 7], "sentence 1 is int"),
        (np.array("He sat"), "expected a list of sentences, got an array without dimensions"),
        ([["a"], b"abc"], "sentence 1 is bytes; expected a string, or a list of tokens"),
        ([None], "sentence 0 is None; expected a string, or a list of tokens"),
        ([["a", None]], "sentence 0, token 1 is NoneType"),
    ],
)
def test_invalid_sentences_are_rejected(embedder: Embedder, sentences, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        embedder.embed(sentences)


@pytest.mark.parametrize("layers", ["last", 3, -1, True])
def test_invalid_layers_are_rejected(embedder: Embedder, layers) -> None:
    with pytest.raises(InputError, match="all, top, average, sum or a number from 0 to 2"):
        embedder.embed(SENTENCES, layers=layers)


def test_invalid_devices_and_precisions_are_rejected(bilm: BiLM) -> None:
    with pytest.raises(InputError, match="device must be auto, cpu, cuda or cuda:NUMBER"):
        Embedder(bilm, device="tpu")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="precision must be fp32, bf16 or int8"):
        Embedder(bilm, precision="fp8")  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="finds 0 GPUs, so there is no cuda:1"):
            Embedder(bilm, device="cuda:1")


@pytest.mark.parametrize("precision", ["bf16", pytest.param("int8", marks=needs_int8)])
def test_lower_precision_is_close_to_fp32(bilm: BiLM, embedder: Embedder, precision) -> None:
    expected = embedder.embed(SENTENCES[:2])
    lower = Embedder(bilm, precision=precision, device="cpu")
    for a, b in zip(lower.embed(SENTENCES[:2]), expected, strict=True):
        assert a.dtype == np.float32
        cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
        assert cosine.min() > 0.99


def test_sentence_vectors_pool_word_vectors(embedder: Embedder) -> None:
    vectors = embedder.embed(SENTENCES, layers="average")
    mean = embedder.sentence_vectors(SENTENCES)
    maximum = embedder.sentence_vectors(SENTENCES, pool="max")
    for i, word_vectors in enumerate(vectors):
        if len(word_vectors):
            np.testing.assert_allclose(mean[i], word_vectors.mean(0), atol=1e-6)
            np.testing.assert_allclose(maximum[i], word_vectors.max(0), atol=1e-6)
        else:
            assert not mean[i].any()
    assert embedder.sentence_vectors([]).shape == (0, 32)


def test_word_vectors_are_half_of_layer_0(embedder: Embedder) -> None:
    words = SENTENCES[0]
    [layer_0] = embedder.embed([words], layers=0)
    np.testing.assert_allclose(embedder.word_vectors(words), layer_0[:, :16], atol=1e-6)


def test_encode_returns_the_input_of_elmo(bilm: BiLM, embedder: Embedder) -> None:
    batch = embedder.encode(["He sat.", ["Banks", "fail"]])
    expected = encode_sentences([["He", "sat", "."], ["Banks", "fail"]])
    assert torch.equal(batch.ids, expected.ids)
    assert torch.equal(batch.mask, expected.mask)
    assert elmore.Elmo(bilm)(batch)[0].shape == (2, 3, 32)


@pytest.mark.parametrize("dtype", ["int8", "float64", "bfloat16", "f4"])
def test_unsupported_dtypes_are_rejected(embedder: Embedder, tmp_path: Path, dtype) -> None:
    with pytest.raises(InputError, match="dtype must be float32 or float16"):
        embedder.embed(SENTENCES, dtype=dtype)
    if dtype != "int8":
        with pytest.raises(InputError, match="dtype must be float32, float16 or int8"):
            embedder.save(tmp_path / "m", dtype=dtype)
        assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "arguments", [{"layers": "last"}, {"dtype": "int8"}, {"batch_words": 0}, {"layers": 7}]
)
def test_stream_checks_its_arguments_immediately(embedder: Embedder, arguments) -> None:
    with pytest.raises(InputError):
        embedder.stream([["a"]], **arguments)
    with pytest.raises(TypeError):
        embedder.stream("a string")


def test_device_accepts_a_torch_device(bilm: BiLM) -> None:
    assert Embedder(bilm, device=torch.device("cpu")).device == torch.device("cpu")
    assert elmore.load(device=torch.device("cpu")).device.type == "cpu"


def test_saved_model_can_be_loaded(embedder: Embedder, tmp_path: Path) -> None:
    embedder.save(tmp_path / "m")
    for a, b in zip(
        elmore.load(tmp_path / "m").embed(SENTENCES), embedder.embed(SENTENCES), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InputError, match="exists already"):
        embedder.save(tmp_path / "m")
    embedder.save(tmp_path / "m", overwrite=True, dtype="float16")


@pytest.fixture
def saved(bilm: BiLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model directory. Models loaded from it are packed, although they are small."""
    monkeypatch.setattr(cpu, "_MIN_WEIGHTS", 1)
    Embedder(bilm, device="cpu").save(tmp_path / "saved")
    return tmp_path / "saved"


@needs_onednn
@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=needs_onednn_bf16)])
def test_loaded_model_holds_each_matrix_once(saved: Path, precision) -> None:
    """Oracle: the parameters that the garbage collector tracks."""
    gc.collect()
    before = {id(x) for x in gc.get_objects() if type(x) is torch.nn.Parameter}
    embedder = elmore.load(saved, device="cpu", precision=precision)
    embedder.embed(SENTENCES)
    new = [x for x in gc.get_objects() if type(x) is torch.nn.Parameter and id(x) not in before]
    assert [tuple(x.shape) for x in new] == [(NUM_CHARACTERS, 4)]  # all other matrices are packed


@needs_onednn
@pytest.mark.parametrize("precision", ["fp32", "bf16", pytest.param("int8", marks=needs_int8)])
def test_bilm_of_a_loaded_embedder_equals_the_saved_model(
    bilm: BiLM, saved: Path, precision
) -> None:
    embedder = elmore.load(saved, device="cpu", precision=precision)
    expected = embedder.embed(SENTENCES)
    embedder.save(saved, overwrite=True)
    for loaded in (embedder.bilm, elmore.load(saved, device="cpu", precision=precision).bilm):
        assert not loaded.training
        assert all(parameter.requires_grad for parameter in loaded.parameters())
        for name, weight in bilm.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], weight)
    assert embedder.bilm is embedder.bilm
    for a, b in zip(embedder.embed(SENTENCES), expected, strict=True):
        np.testing.assert_array_equal(a, b)


@needs_onednn
def test_refresh_takes_the_current_weights_of_a_loaded_model(saved: Path, bilm: BiLM) -> None:
    """Weights come from the files or, once `bilm` was used, from `bilm`. Oracle: the plain biLM."""
    embedder = elmore.load(saved, device="cpu")
    with torch.no_grad():
        bilm.forward_lstms[0].input.weight.mul_(1.5)
    Embedder(bilm, device="cpu").save(saved, overwrite=True)
    embedder.refresh()
    [vectors, *_] = embedder.embed(SENTENCES)
    np.testing.assert_allclose(vectors, run_bilm(bilm, SENTENCES[0]), atol=1e-6)
    with torch.no_grad():
        embedder.bilm.forward_lstms[0].input.weight.mul_(1.5)
    embedder.refresh()
    [vectors, *_] = embedder.embed(SENTENCES)
    np.testing.assert_allclose(vectors, run_bilm(embedder.bilm, SENTENCES[0]), atol=1e-6)


@pytest.mark.parametrize("use", [lambda x, path: x.save(path), lambda x, _: pickle.dumps(x)])
def test_saving_and_pickling_keep_no_second_model_in_memory(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use
) -> None:
    """Oracle: weak references to the models that were read from the files."""
    read: list[weakref.ref[BiLM]] = []

    def read_and_note(*args, **kwargs) -> Pretrained:
        pretrained = read_pretrained(*args, **kwargs)
        read.append(weakref.ref(pretrained.bilm))
        return pretrained

    monkeypatch.setattr("elmore.embedder.read_pretrained", read_and_note)
    embedder = elmore.load(saved, device="cpu")
    use(embedder, tmp_path / "copy")
    gc.collect()
    _of_engine, second = read
    assert second() is None


@needs_onednn
@pytest.mark.parametrize(
    "make_copy", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_packed_model_can_be_copied(saved: Path, make_copy) -> None:
    """Oracle: the original."""
    embedder = elmore.load(saved, device="cpu")
    for a, b in zip(make_copy(embedder).embed(SENTENCES), embedder.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(a, b)


class _Table(dict[str, list[str]]):
    """A stub of a data frame, which iterates over the names of its columns."""

    columns = ("id", "text")


@pytest.mark.parametrize("table", [_Table(text=["A bank."]), {"text": ["A bank."]}])
def test_embed_rejects_tables(embedder: Embedder, table: object) -> None:
    with pytest.raises(TypeError, match=r'Pass the column.*table\["text"\]'):
        embedder.embed(table)


def test_sentence_vectors_of_all_layers_are_rejected(embedder: Embedder) -> None:
    with pytest.raises(InputError, match="layers must be top, average or a number from 0 to 2"):
        embedder.sentence_vectors([["bank"]], layers="all")


def test_repr_names_sizes_device_and_precision(embedder: Embedder) -> None:
    expected = f"Embedder(3 layers of {embedder.dim} dimensions, device=cpu, precision=fp32)"
    assert repr(embedder) == expected


def test_encode_rejects_a_single_string(embedder: Embedder) -> None:
    with pytest.raises(TypeError, match=r"got one string.*Put it in a list: \[sentence\]"):
        embedder.encode("He sat")
    with pytest.raises(TypeError, match=r"list of words, got one string \('bank'\)"):
        embedder.word_vectors("bank")


def test_urls_are_not_models() -> None:
    with pytest.raises(InputError, match=r"https://example.org/elmo is a URL; download"):
        elmore.load("https://example.org/elmo")


def test_text_in_a_script_that_the_model_has_not_seen_is_reported(bilm: BiLM) -> None:
    text = "\uadf8\ub294 \uac15\uac00\uc5d0 \uc549\uc544 \uc788\uc5c8\ub2e4."
    english = Embedder(bilm, device="cpu", language="en")
    with pytest.warns(UserWarning, match="most letters of the text are not Latin"):
        english.embed([text])
    with pytest.warns(UserWarning, match="most letters of the text are not Latin"):
        english.encode([text])
    Embedder(bilm, device="cpu", language="ko").embed([text])
