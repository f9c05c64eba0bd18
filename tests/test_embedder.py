"""Oracles: the biLM run by hand, sentence by sentence; invariants of batching and streaming."""

import copy
import gc
import pickle
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import elmore
from elmore.bilm import word_table
from elmore.bilm.model import BiLM
from elmore.bilm.products import can_pack
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.text.characters import NUM_CHARACTERS, encode_sentences

SENTENCES = [
    ["He", "sat", "by", "the", "bank"],
    ["Banks", "fail"],
    [],
    ["the"] * 40,
    ["", "<S>", "x" * 100, "\u00e9\u4e2d\ud800"],
]


needs_packing = pytest.mark.skipif(not can_pack(), reason="no oneDNN here")


@torch.no_grad()
def by_hand(bilm: BiLM, words: list[str]) -> np.ndarray:
    return bilm(*encode_sentences([words])).layers[0, :, 1:-1].numpy()


def many_sentences(count: int) -> list[list[str]]:
    draw = random.Random(0)
    words = [f"word{i}" for i in range(60)]
    return [draw.choices(words, k=draw.randrange(0, 30)) for _ in range(count)]


def test_vectors_are_those_of_the_bilm(bilm: BiLM, embedder: Embedder) -> None:
    for words, vectors in zip(SENTENCES, embedder.embed(SENTENCES), strict=True):
        assert vectors.dtype == np.float32
        assert vectors.shape == (3, len(words), 32)
        np.testing.assert_allclose(vectors, by_hand(bilm, words), atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "pick"),
    [
        ("top", lambda v: v[-1]),
        ("average", lambda v: v.mean(0)),
        (0, lambda v: v[0]),
        (1, lambda v: v[1]),
    ],
)
def test_choice_of_layers(embedder: Embedder, layers, pick) -> None:
    for chosen, everything in zip(
        embedder.embed(SENTENCES, layers=layers), embedder.embed(SENTENCES), strict=True
    ):
        np.testing.assert_allclose(chosen, pick(everything), atol=1e-6)


def test_the_same_call_twice_is_bit_equal(embedder: Embedder) -> None:
    sentences = many_sentences(100)
    embedder.embed(many_sentences(7))  # whatever came before
    first, second = embedder.embed(sentences), embedder.embed(sentences)
    for a, b in zip(first, second, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("batch_words", [1, 50, 300, 100_000])
def test_any_batch_and_any_order_agree(embedder: Embedder, batch_words: int) -> None:
    sentences = many_sentences(60)
    expected = {i: embedder.embed([words])[0] for i, words in enumerate(sentences)}
    order = list(range(60))
    random.Random(1).shuffle(order)
    found = embedder.embed([sentences[i] for i in order], batch_words=batch_words)
    for i, vectors in zip(order, found, strict=True):
        np.testing.assert_allclose(vectors, expected[i], atol=1e-5)


def counting(embedder: Embedder) -> list[int]:
    """How many distinct words each call of the token layer encodes, from now on."""
    encoded: list[int] = []
    encode = embedder._fast().encode
    encode.register_forward_hook(lambda _, args, __: encoded.append(len(args[0].unique(dim=0))))
    return encoded


def test_each_distinct_word_is_encoded_once(embedder: Embedder) -> None:
    encoded = counting(embedder)
    sentences = many_sentences(200)
    embedder.embed(sentences, batch_words=200)
    distinct = {word for words in sentences for word in words}
    assert sum(encoded) == len(distinct) + 2  # <S> and </S>


@pytest.fixture
def loaded(bilm: BiLM, tmp_path: Path) -> Embedder:
    """An embedder whose weights nobody else has."""
    Embedder(bilm, device="cpu").save(tmp_path / "loaded")
    return elmore.load(tmp_path / "loaded", device="cpu")


@pytest.mark.parametrize("whose", ["loaded", "embedder"])
def test_words_are_remembered_from_call_to_call(request: pytest.FixtureRequest, whose: str) -> None:
    embedder = request.getfixturevalue(whose)
    encoded = counting(embedder)
    sentences = many_sentences(200)
    first = embedder.embed(sentences, batch_words=200)
    count = sum(encoded)
    again = embedder.embed(reversed(sentences), batch_words=300)
    embedder.word_vectors(sentences[0])
    assert sum(encoded) == count
    for a, b in zip(first, reversed(again), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    embedder.word_vectors(["new"])
    assert sum(encoded) == count + 1


def test_what_is_remembered_has_bounds(loaded: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(word_table._WORDS, "cpu", 10)
    streams = [loaded.stream(many_sentences(3)) for _ in range(5)]
    for stream in streams:
        next(stream)
    for stream in streams:
        list(stream)
    assert len(loaded._tables) <= 1
    loaded.embed([[f"word{n}" for n in range(50)]])
    assert all(len(table.vectors) <= 10 for table in loaded._tables)


@pytest.mark.parametrize("smallest", [1, 10**9])
def test_weights_may_change_uncounted(
    loaded: Embedder, smallest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the biLM itself, after steps of an optimizer that counts no versions."""
    monkeypatch.setattr("elmore.bilm.packed._SMALLEST", smallest)  # with a twin and without
    loaded.embed(SENTENCES)
    bilm = loaded.bilm
    optimizer = torch.optim.AdamW(bilm.parameters(), fused=True)
    for _ in range(2):
        for parameter in bilm.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        for _ in range(2):
            [vectors, *_] = loaded.embed(SENTENCES)
            np.testing.assert_allclose(vectors, by_hand(bilm, SENTENCES[0]), atol=1e-6)


def test_weights_may_change_while_a_stream_is_read(embedder: Embedder, bilm: BiLM) -> None:
    """Oracle: the biLM itself. What the stream has learned before is not to be kept."""
    stream = embedder.stream(many_sentences(40), batch_words=20)
    next(stream)
    bilm.get_parameter("encode.project.weight").data.mul_(1.5)
    [vectors] = embedder.embed(SENTENCES[:1])
    np.testing.assert_allclose(vectors, by_hand(bilm, SENTENCES[0]), atol=1e-6)
    list(stream)
    [words] = embedder.embed([sentence := many_sentences(1)[0]])
    np.testing.assert_allclose(words, by_hand(bilm, sentence), atol=1e-6)


@pytest.mark.parametrize("smallest", [1, 10**9])
def test_weights_may_get_another_type(
    embedder: Embedder, bilm: BiLM, smallest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmore.bilm.packed._SMALLEST", smallest)  # with a twin and without
    embedder.embed(SENTENCES)
    bilm.double()
    [vectors, *_] = embedder.embed(SENTENCES)
    np.testing.assert_allclose(vectors, by_hand(bilm, SENTENCES[0]), atol=1e-6)


@pytest.mark.parametrize("smallest", [1, 10**9])
def test_models_of_inference_mode_embed(
    bilm: BiLM, tmp_path: Path, smallest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmore.bilm.packed._SMALLEST", smallest)
    Embedder(bilm, device="cpu").save(tmp_path / "model")
    with torch.inference_mode():
        loaded = elmore.load(tmp_path / "model", device="cpu")
        for embedder in (loaded, Embedder(loaded.bilm, device="cpu"), loaded):
            [vectors, *_] = embedder.embed(SENTENCES)
            np.testing.assert_allclose(vectors, by_hand(bilm, SENTENCES[0]), atol=1e-6)


def test_what_is_freed_stays_free(loaded: Embedder) -> None:
    stream = loaded.stream(many_sentences(40), batch_words=20)
    next(stream)
    loaded.free()
    list(stream)
    assert not loaded._tables


def test_reading_on_leaves_no_layers_behind(embedder: Embedder) -> None:
    """What was not asked for is not kept, and the text is read as the caller would read it."""

    def text() -> Iterator[list[str]]:
        for sentence in SENTENCES:
            assert not torch.is_inference_mode_enabled()
            yield sentence

    for layers in ("all", "top", 0):
        for vectors in embedder.embed(text(), layers=layers, carry_state=True):
            assert vectors.flags.owndata
            assert vectors.flags.c_contiguous


def test_streams_side_by_side_do_not_meet(
    loaded: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = many_sentences(40)
    expected = loaded.embed(sentences)
    loaded.free()
    monkeypatch.setitem(word_table._WORDS, "cpu", 10)  # so that tables start over all the time
    first = loaded.stream(sentences, batch_words=20)
    second = loaded.stream(reversed(sentences), batch_words=30)
    pairs = list(zip(first, second, strict=True))
    for (a, b), c, d in zip(pairs, expected, reversed(expected), strict=True):
        np.testing.assert_allclose(a.vectors, c, atol=1e-5)
        np.testing.assert_allclose(b.vectors, d, atol=1e-5)


def test_what_was_interrupted_is_not_known(
    loaded: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loaded._fast().encode, "forward", interrupt)
        with pytest.raises(KeyboardInterrupt):
            loaded.embed([["bank"]])
    [found] = loaded.embed([["bank"]])
    loaded.free()
    [expected] = loaded.embed([["bank"]])
    np.testing.assert_array_equal(found, expected)


def test_a_full_cache_starts_over_and_changes_nothing(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = many_sentences(50)
    expected = embedder.embed(sentences)
    monkeypatch.setitem(word_table._WORDS, "cpu", 10)
    for a, b in zip(embedder.embed(sentences, batch_words=64), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_stream_reads_no_further_than_it_must(embedder: Embedder) -> None:
    read = 0

    def endless() -> Iterator[list[str]]:
        nonlocal read
        while True:
            read += 1
            yield ["word"] * 8

    stream = embedder.stream(endless(), batch_words=40)
    assert next(stream).vectors.shape == (3, 8, 32)
    assert read <= 40


def test_strings_are_tokenized_and_lists_are_not(bilm: BiLM) -> None:
    embedder = Embedder(bilm)
    text = "He doesn't bank."
    [from_string] = embedder.stream([text])
    assert from_string.tokens == elmore.tokenize(text)
    [from_list] = embedder.stream([["He doesn't", "bank."]])
    assert from_list.tokens == ["He doesn't", "bank."]
    [by_space] = Embedder(bilm, tokenizer="whitespace").stream([text])
    assert by_space.tokens == text.split()


def test_carried_state_reads_sentences_as_one_text(bilm: BiLM, embedder: Embedder) -> None:
    state = None
    found = embedder.embed(SENTENCES, carry_state=True)
    for words, vectors in zip(SENTENCES, found, strict=True):
        with torch.no_grad():
            layers, state = bilm(*encode_sentences([words]), state)
        np.testing.assert_allclose(vectors, layers[0, :, 1:-1], atol=1e-6)
    again = embedder.embed(SENTENCES, carry_state=True)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


def test_nothing_in_nothing_out(embedder: Embedder) -> None:
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
        ([["a"], 7], "sentence 1 is int"),
        ([["a", None]], "sentence 0, token 1 is NoneType"),
    ],
)
def test_what_is_no_sentence_is_refused(embedder: Embedder, sentences, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        embedder.embed(sentences)


@pytest.mark.parametrize("layers", ["last", 3, -1, True])
def test_layers_that_do_not_exist_are_named(embedder: Embedder, layers) -> None:
    with pytest.raises(InputError, match="all, top, average or a number from 0 to 2"):
        embedder.embed(SENTENCES, layers=layers)


def test_wrong_devices_and_precisions_are_named(bilm: BiLM) -> None:
    with pytest.raises(InputError, match="device must be auto, cpu, cuda or cuda:NUMBER"):
        Embedder(bilm, device="tpu")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="precision must be fp32, bf16, int8"):
        Embedder(bilm, precision="fp8")  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="finds 0 GPUs, so there is no cuda:1"):
            Embedder(bilm, device="cuda:1")


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_fewer_digits_are_close(bilm: BiLM, embedder: Embedder, precision) -> None:
    expected = embedder.embed(SENTENCES[:2])
    rough = Embedder(bilm, precision=precision, device="cpu")
    for a, b in zip(rough.embed(SENTENCES[:2]), expected, strict=True):
        assert a.dtype == np.float32
        cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
        assert cosine.min() > 0.99


def test_sentence_vectors_pool_the_words(embedder: Embedder) -> None:
    vectors = embedder.embed(SENTENCES, layers="average")
    mean = embedder.sentence_vectors(SENTENCES)
    largest = embedder.sentence_vectors(SENTENCES, pool="max")
    for i, of_words in enumerate(vectors):
        if len(of_words):
            np.testing.assert_allclose(mean[i], of_words.mean(0), atol=1e-6)
            np.testing.assert_allclose(largest[i], of_words.max(0), atol=1e-6)
        else:
            assert not mean[i].any()
    assert embedder.sentence_vectors([]).shape == (0, 32)


def test_word_vectors_are_half_of_layer_0(embedder: Embedder) -> None:
    words = SENTENCES[0]
    [layer_0] = embedder.embed([words], layers=0)
    np.testing.assert_allclose(embedder.word_vectors(words), layer_0[:, :16], atol=1e-6)


def test_encode_gives_what_the_bilm_takes(bilm: BiLM, embedder: Embedder) -> None:
    batch = embedder.encode(["He sat.", ["Banks", "fail"]])
    assert batch.ids.shape == (2, 5, 50)
    assert elmore.Elmo(bilm)(batch)[0].shape == (2, 3, 32)


def test_a_task_that_trains_the_bilm_does_not_disturb(bilm: BiLM, embedder: Embedder) -> None:
    expected = embedder.embed(SENTENCES)
    task = elmore.Elmo(bilm, frozen=False).train()
    for a, b in zip(embedder.embed(SENTENCES), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert task.bilm.training


def test_another_precision_leaves_the_bilm_alone(bilm: BiLM, embedder: Embedder) -> None:
    expected = embedder.embed(SENTENCES)
    Embedder(bilm, precision="bf16").embed(SENTENCES)
    for a, b in zip(embedder.embed(SENTENCES), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_saved_model_is_loaded_again(embedder: Embedder, tmp_path: Path) -> None:
    embedder.save(tmp_path / "m")
    for a, b in zip(
        elmore.load(tmp_path / "m").embed(SENTENCES), embedder.embed(SENTENCES), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InputError, match="exists already"):
        embedder.save(tmp_path / "m")
    embedder.save(tmp_path / "m", overwrite=True, dtype="float16")


@pytest.mark.parametrize("part", ["forward_lstms.0.input.weight", "encode.embed.weight"])
@pytest.mark.parametrize("smallest", [1, 10**9])
def test_weights_that_a_task_has_changed_count(
    bilm: BiLM, embedder: Embedder, smallest: int, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmore.bilm.packed._SMALLEST", smallest)  # with a twin and without
    before = embedder.embed(SENTENCES)
    with torch.no_grad():
        bilm.get_parameter(part).mul_(1.5)
    after = embedder.embed(SENTENCES)
    assert not np.array_equal(before[0], after[0])
    np.testing.assert_allclose(after[0], by_hand(bilm, SENTENCES[0]), atol=1e-6)


@pytest.fixture
def saved(bilm: BiLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose model counts as large, so that `load` keeps it packed."""
    monkeypatch.setattr("elmore.bilm.packed._SMALLEST", 1)
    Embedder(bilm, device="cpu").save(tmp_path / "saved")
    return tmp_path / "saved"


@needs_packing
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_loaded_model_holds_each_matrix_once(saved: Path, precision) -> None:
    """Oracle: the tensors that Python's collector finds in memory."""
    gc.collect()
    before = {id(x) for x in gc.get_objects() if type(x) is torch.nn.Parameter}
    embedder = elmore.load(saved, device="cpu", precision=precision)
    embedder.embed(SENTENCES)
    new = [x for x in gc.get_objects() if type(x) is torch.nn.Parameter and id(x) not in before]
    assert [tuple(x.shape) for x in new] == [(NUM_CHARACTERS, 4)]  # the others are packed


@needs_packing
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_packed_model_gives_its_bilm_back(bilm: BiLM, saved: Path, precision) -> None:
    """Oracle: the model that was saved."""
    embedder = elmore.load(saved, device="cpu", precision=precision)
    expected = embedder.embed(SENTENCES)
    embedder.free()
    embedder.save(saved, overwrite=True)
    for found in (embedder.bilm, elmore.load(saved, device="cpu", precision=precision).bilm):
        assert not found.training
        assert all(parameter.requires_grad for parameter in found.parameters())
        for name, weight in bilm.state_dict().items():
            assert torch.equal(found.state_dict()[name], weight.to(found.encode.embed.weight.dtype))
    assert embedder.bilm is embedder.bilm
    for a, b in zip(embedder.embed(SENTENCES), expected, strict=True):
        np.testing.assert_array_equal(a, b)


@needs_packing
def test_weights_changed_after_loading_count(saved: Path) -> None:
    """Oracle: the biLM run by hand."""
    embedder = elmore.load(saved, device="cpu")
    embedder.embed(SENTENCES)
    with torch.no_grad():
        embedder.bilm.forward_lstms[0].input.weight.mul_(1.5)
    found = embedder.embed(SENTENCES)
    np.testing.assert_allclose(found[0], by_hand(embedder.bilm, SENTENCES[0]), atol=1e-6)


@needs_packing
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_packed_model_can_be_copied(saved: Path, again) -> None:
    """Oracle: the model it is a copy of."""
    embedder = elmore.load(saved, device="cpu")
    for a, b in zip(again(embedder).embed(SENTENCES), embedder.embed(SENTENCES), strict=True):
        np.testing.assert_array_equal(a, b)
