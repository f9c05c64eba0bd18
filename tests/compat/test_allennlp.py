"""AllenNLP's API. Oracles: vectors published with AllenNLP; a biLM in NumPy with carried state."""

import copy
import json
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from elmore.checkpoint.hdf5 import read_hdf5
from elmore.compat.allennlp import Elmo, ElmoEmbedder, ElmoTokenEmbedder, batch_to_ids
from elmore.errors import InputError
from elmore.text.characters import encode_sentences
from tests.oracles import allennlp, released_bilm
from tests.oracles.releases import VARIANTS, Release, Variant, write_release

# Batches of different sizes: missing rows keep their state, new rows start from zeros.
BATCHES = [
    [["the", "bank"], ["of"], ["a", "river", "."], []],
    [["rates"], ["The", "bank", "fails"]],
    [["a"], ["b", "c"], ["d"], ["e", "f", "g"], ["h"]],
    [["only", "one"]],
    [["the", "bank"], ["of"], ["a", "river", "."], ["x"]],
]


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return write_release(tmp_path, VARIANTS["usual"])


def expected_layers(release: Release) -> list[list[np.ndarray]]:
    """Return all layers of BATCHES, with boundary tokens and with the state of each row carried."""
    states: dict[int, released_bilm.State] = {}
    expected = []
    for batch in BATCHES:
        expected.append([])
        for row, words in enumerate(batch):
            layers, states[row] = released_bilm.embed(
                words, release.weights, release.options, states.get(row)
            )
            expected[-1].append(layers)
    return expected


def test_batch_to_ids_adds_no_boundary_tokens() -> None:
    ids = batch_to_ids([["a", "<S>"], []])
    with_boundaries = encode_sentences([["a", "<S>"], []]).ids
    assert torch.equal(ids[0], with_boundaries[0, 1:3])
    assert not ids[1].any()
    assert batch_to_ids([]).shape == (0, 0, 50)
    assert batch_to_ids([[]]).shape == (1, 0, 50)
    with pytest.raises(TypeError, match="sentence 0 is a string"):
        batch_to_ids(["a string"])


def test_embedder_reproduces_the_published_vectors(published: Path) -> None:
    [file] = published.glob("*sentences.json")
    texts = json.loads(file.read_text())
    embedder = ElmoEmbedder(published / "options.json", published / "lm_weights.hdf5")
    for i in range(10):
        batch = embedder.embed_batch([text[i].split() for text in texts])
        for row, vectors in enumerate(batch):
            with h5py.File(published / f"lm_embeddings_{row}.hdf5") as expected:
                top = np.concatenate(expected[str(i)][...], axis=-1)
            np.testing.assert_allclose(vectors[-1], top, rtol=0, atol=5e-6)


def test_state_is_carried_for_each_row_of_the_batch(release: Release) -> None:
    embedder = ElmoEmbedder(release.options_file, release.weights_file)
    for batch, expected in zip(BATCHES, expected_layers(release), strict=True):
        for vectors, layers in zip(embedder.embed_batch(batch), expected, strict=True):
            np.testing.assert_allclose(vectors, layers[:, 1:-1], atol=2e-6)


def test_state_is_not_carried_if_not_stateful(release: Release) -> None:
    embedder = ElmoEmbedder(release.options_file, release.weights_file, stateful=False)
    first, second = (embedder.embed_sentence(["the", "bank"]) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@torch.no_grad()
@pytest.mark.parametrize("boundaries", [False, True])
def test_elmo_mixes_layers_with_carried_state(release: Release, boundaries: bool) -> None:
    elmo = Elmo(
        release.options_file, release.weights_file, 2, dropout=0.0,
        keep_sentence_boundaries=boundaries,
    ).eval()  # fmt: skip
    for batch, expected in zip(BATCHES, expected_layers(release), strict=True):
        output = elmo(batch_to_ids(batch))
        first, second = output["elmo_representations"]
        torch.testing.assert_close(first, second)
        assert elmo.get_output_dim() == first.shape[-1] == 12
        for row, layers in enumerate(expected):
            mean = layers.mean(axis=0)
            mean = mean if boundaries else mean[1:-1]
            n = len(mean)
            assert output["mask"][row].sum() == n
            np.testing.assert_allclose(first[row, :n], mean, atol=2e-6)
            assert not first[row, n:].any()


@torch.no_grad()
@pytest.mark.parametrize("requires_grad", [False, True])
def test_state_is_converted_with_the_module(release: Release, requires_grad: bool) -> None:
    """Oracle: the layers of a module that is not converted.

    `double` stands for all of `to`, `cuda` and so on, which call the same method of PyTorch.
    """
    elmo = Elmo(
        release.options_file, release.weights_file, requires_grad=requires_grad, dropout=0.0
    )
    first, second, *_ = expected_layers(release)
    for batch, expected in ((BATCHES[0], first), (BATCHES[1], second)):
        [mixed] = elmo(batch_to_ids(batch))["elmo_representations"]
        for vectors, layers in zip(mixed, expected, strict=True):
            mean = layers.mean(axis=0)[1:-1]
            np.testing.assert_allclose(vectors[: len(mean)], mean, atol=2e-6)
        elmo.double()
    assert mixed.dtype == torch.float64


@torch.no_grad()
def test_reset_states_drops_the_state(release: Release) -> None:
    elmo = Elmo(release.options_file, release.weights_file, 1, dropout=0.0).eval()
    ids = batch_to_ids([["the", "bank"]])
    first = elmo(ids)["elmo_representations"][0]
    assert not torch.allclose(first, elmo(ids)["elmo_representations"][0])
    elmo.reset_states()
    assert torch.equal(first, elmo(ids)["elmo_representations"][0])


@torch.no_grad()
def test_stateful_can_be_set_later(release: Release) -> None:
    """Oracle: an `Elmo` with `stateful=False`."""
    files = release.options_file, release.weights_file
    elmo, stateless = Elmo(*files, dropout=0), Elmo(*files, dropout=0, stateful=False)
    ids = batch_to_ids([["the", "bank"]])
    [expected] = stateless(ids)["elmo_representations"]
    elmo(ids)
    elmo.stateful = False
    assert not elmo.stateful
    assert torch.equal(elmo(ids)["elmo_representations"][0], expected)
    stateless.stateful = True
    stateless(ids)
    assert not torch.allclose(stateless(ids)["elmo_representations"][0], expected)


@torch.no_grad()
def test_scalar_mix_parameters_select_a_layer_of_the_given_module(release: Release) -> None:
    bilm = read_hdf5(release.weights_file, release.options_file)
    elmo = Elmo(module=bilm, scalar_mix_parameters=[-9e10, 1.0, -9e10], dropout=0.0).eval()
    mixed = elmo(batch_to_ids([["the", "bank"]]))["elmo_representations"][0]
    layers, _ = released_bilm.embed(["the", "bank"], release.weights, release.options)
    np.testing.assert_allclose(mixed[0], layers[1, 1:-1], atol=2e-6)


@torch.no_grad()
def test_layer_norm_equals_numpy(release: Release) -> None:
    """AllenNLP has one mean and variance per layer, over all tokens including boundary tokens."""
    elmo = Elmo(release.options_file, release.weights_file, 1, do_layer_norm=True, dropout=0.0)
    batch = BATCHES[0]
    mixed = elmo.eval()(batch_to_ids(batch))["elmo_representations"][0]
    layers = expected_layers(release)[0]
    normed = []
    for j in range(3):
        values = np.concatenate([sentence[j] for sentence in layers])
        normed.append([(sentence[j] - values.mean()) / values.std() for sentence in layers])
    for row, words in enumerate(batch):
        mean = np.mean([layer[row] for layer in normed], axis=0)[1:-1]
        np.testing.assert_allclose(mixed[row, : len(words)], mean, atol=1e-5)


@torch.no_grad()
def test_leading_dimensions_of_the_input_are_kept(release: Release) -> None:
    elmo = Elmo(release.options_file, release.weights_file, 1, dropout=0.0, stateful=False).eval()
    ids = batch_to_ids([["a", "b"], ["c"], ["d", "e"], []])
    flat = elmo(ids)
    nested = elmo(ids.view(2, 2, 2, 50))
    assert nested["mask"].shape == (2, 2, 2)
    torch.testing.assert_close(
        nested["elmo_representations"][0].flatten(0, 1), flat["elmo_representations"][0]
    )


@torch.no_grad()
def test_cached_words_are_used_unless_a_word_is_not_cached(release: Release) -> None:
    vocabulary = ["@@PADDING@@", "the", "bank", "of"]
    uncached = Elmo(
        release.options_file, release.weights_file, 1, dropout=0.0, stateful=False
    ).eval()
    cached = Elmo(
        release.options_file, release.weights_file, 1, dropout=0.0, stateful=False,
        vocab_to_cache=vocabulary,
    ).eval()  # fmt: skip
    batch = [["the", "bank"], ["of"]]
    expected = uncached(batch_to_ids(batch))["elmo_representations"][0]
    word_ids = torch.tensor([[1, 2], [3, 0]])
    output = cached(batch_to_ids([["x", "y"], ["z"]]), word_inputs=word_ids)  # characters ignored
    torch.testing.assert_close(output["elmo_representations"][0], expected)
    assert output["mask"].tolist() == [[True, True], [True, False]]
    unknown = cached(batch_to_ids(batch), word_inputs=torch.tensor([[1, 99], [3, 0]]))
    torch.testing.assert_close(unknown["elmo_representations"][0], expected)


@torch.no_grad()
def test_loading_weights_updates_cached_words(release: Release) -> None:
    """Oracle: a model that was created with these weights."""
    cached = Elmo(
        release.options_file, release.weights_file, 1, dropout=0.0, stateful=False,
        vocab_to_cache=["@@PADDING@@", "the", "bank"],
    ).eval()  # fmt: skip
    ids, word_ids = batch_to_ids([["the", "bank"]]), torch.tensor([[1, 2]])
    cached(ids, word_inputs=word_ids)
    bilm = read_hdf5(release.weights_file, release.options_file)
    for parameter in bilm.parameters():
        parameter.mul_(1.3)
    other = Elmo(module=bilm, dropout=0.0, stateful=False).eval()
    cached.load_state_dict(other.state_dict())
    mixed = cached(ids, word_inputs=word_ids)["elmo_representations"][0]
    torch.testing.assert_close(mixed, other(ids)["elmo_representations"][0])


def test_requires_grad_trains_the_bilm(release: Release) -> None:
    for requires_grad in (False, True):
        elmo = Elmo(release.options_file, release.weights_file, 1, requires_grad=requires_grad)
        loss = elmo(batch_to_ids([["the", "bank"]]))["elmo_representations"][0].square().sum()
        loss.backward()
        grads = [p.grad is not None for p in elmo.bilm.parameters()]
        assert all(grads) if requires_grad else not any(grads)
        # The next backward pass must not reach into the graph of this one.
        elmo(batch_to_ids([["again"]]))["elmo_representations"][0].sum().backward()


@pytest.mark.parametrize("of", ["module", "bilm"])
def test_bilm_can_be_unfrozen_later(release: Release, of: str) -> None:
    """Oracle: the weights of an `Elmo` that is created with `requires_grad=True`."""
    batches = [batch_to_ids(batch) for batch in BATCHES[:2]]
    late = Elmo(release.options_file, release.weights_file, 1, dropout=0)
    early = Elmo(release.options_file, release.weights_file, 1, requires_grad=True, dropout=0)
    frozen, _ = late(batches[0]), early(batches[0])  # both carry the same state
    assert frozen["elmo_representations"][0].requires_grad  # because of the mix
    (late if of == "module" else late.bilm).requires_grad_(True)
    for elmo in (late, early):
        optimizer = torch.optim.SGD(elmo.parameters(), lr=0.1)
        elmo(batches[1])["elmo_representations"][0].square().sum().backward()
        optimizer.step()
    before = read_hdf5(release.weights_file, release.options_file)
    for name, weight in late.bilm.named_parameters():
        assert not torch.equal(weight, before.get_parameter(name)), name
        torch.testing.assert_close(weight, early.bilm.get_parameter(name))


@torch.no_grad()
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_bilm_is_loaded_from_an_allennlp_checkpoint(
    release: Release, tmp_path: Path, strict: bool, requires_grad: bool
) -> None:
    """Oracle: a module that was created with these weights, and a projection in NumPy."""
    other = write_release(tmp_path / "other", VARIANTS["usual"], seed=1)

    def new(files: Release) -> ElmoTokenEmbedder:
        return ElmoTokenEmbedder(
            files.options_file, files.weights_file, dropout=0, projection_dim=3, stateful=False,
            requires_grad=requires_grad,
        )  # fmt: skip

    ids = batch_to_ids([["the", "bank"], ["a"]])
    expected = new(release)
    task = torch.nn.ModuleDict({"embed": new(other)})
    task["embed"](ids)
    bilm = {f"_elmo.{name}": x for name, x in allennlp.state_dict(release.weights).items()}
    rest = {name: x for name, x in expected.state_dict().items() if "bilm." not in name}
    cache = {"_elmo._elmo_lstm._word_embedding.weight": torch.ones(3, 6)}  # of `vocab_to_cache`
    checkpoint = {f"embed.{name}": x for name, x in (bilm | rest | cache).items()}
    names = set(checkpoint)
    result = task.load_state_dict(checkpoint, strict=strict)
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert set(checkpoint) == names
    torch.testing.assert_close(task["embed"](ids), expected(ids))


def test_bilm_of_another_size_in_a_checkpoint_is_rejected(release: Release, tmp_path: Path) -> None:
    elmo = Elmo(release.options_file, release.weights_file, 1)
    before = copy.deepcopy(elmo.state_dict())
    for name, message in (
        ("three layers", "unexpected: _elmo_lstm._elmo_lstm.backward_layer_2"),
        ("one layer", "missing: _elmo_lstm._elmo_lstm.backward_layer_1"),
        ("no highway", "missing: _elmo_lstm._token_embedder._highways._layers.0"),
    ):
        other = write_release(tmp_path / name, VARIANTS[name])
        with pytest.raises(RuntimeError, match=rf"{message}.*Create Elmo with the options"):
            elmo.load_state_dict(allennlp.state_dict(other.weights), strict=False)
    assert all(torch.equal(x, before[name]) for name, x in elmo.state_dict().items())
    large = write_release(tmp_path / "large", Variant(dim=8))
    with pytest.raises(RuntimeError, match=r"size mismatch for bilm.encode.project.weight"):
        elmo.load_state_dict(allennlp.state_dict(large.weights), strict=False)


def test_embed_sentences_and_batch_to_embeddings_equal_numpy(release: Release) -> None:
    embedder = ElmoEmbedder(release.options_file, release.weights_file, stateful=False)
    sentences = [words for batch in BATCHES for words in batch]
    expected = [
        released_bilm.embed(words, release.weights, release.options)[0][:, 1:-1]
        for words in sentences
    ]
    embedded = embedder.embed_sentences(iter(sentences), batch_size=4)
    for vectors, layers in zip(embedded, expected, strict=True):
        np.testing.assert_allclose(vectors, layers, atol=2e-6)
    layers, mask = embedder.batch_to_embeddings(sentences[:3])
    assert mask.sum(dim=1).tolist() == [2, 1, 3]
    assert not layers[1, :, 1:].any()
    np.testing.assert_allclose(layers[2], expected[2], atol=2e-6)


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_embed_file_writes_the_layout_of_the_allennlp_elmo_command(
    release: Release, tmp_path: Path, output_format
) -> None:
    lines = ["the bank", "of a river .", "the bank"]
    args = (release.options_file, release.weights_file)
    ElmoEmbedder(*args).embed_file(lines, tmp_path / "v.h5", output_format, batch_size=2)
    expected = list(ElmoEmbedder(*args).embed_sentences((s.split() for s in lines), 2))
    pick = {"all": lambda v: v, "top": lambda v: v[-1], "average": lambda v: v.mean(0)}
    with h5py.File(tmp_path / "v.h5") as file:
        assert json.loads(file["sentence_to_index"][0]) == {"the bank": "2", "of a river .": "1"}
        for i, vectors in enumerate(expected):
            np.testing.assert_allclose(file[str(i)], pick[output_format](vectors), atol=1e-6)


def test_embed_file_uses_sentences_as_keys_or_forgets_them(
    release: Release, tmp_path: Path
) -> None:
    embedder = ElmoEmbedder(release.options_file, release.weights_file)
    embedder.embed_file(["a b", "c"], tmp_path / "k.h5", use_sentence_keys=True)
    embedder.embed_file(["a b", "c"], tmp_path / "f.h5", forget_sentences=True)
    with h5py.File(tmp_path / "k.h5") as keys, h5py.File(tmp_path / "f.h5") as forgotten:
        assert set(keys) == {"a b", "c"}
        assert set(forgotten) == {"0", "1"}


def test_invalid_input_is_rejected(release: Release, tmp_path: Path) -> None:
    embedder = ElmoEmbedder(release.options_file, release.weights_file)
    with pytest.raises(InputError, match="line 2 is blank"):
        embedder.embed_file(["a", " ", "b"], tmp_path / "x.h5")
    with pytest.raises(InputError, match="distinct sentences"):
        embedder.embed_file(["a", "a"], tmp_path / "x.h5", use_sentence_keys=True)
    with pytest.raises(InputError, match="distinct sentences without '/'"):
        embedder.embed_file(["a/b"], tmp_path / "x.h5", use_sentence_keys=True)
    with pytest.raises(InputError, match="output_format must be"):
        embedder.embed_file(["a"], tmp_path / "x.h5", "last")  # type: ignore[arg-type]
    assert not (tmp_path / "x.h5").exists()
    with pytest.raises(InputError, match="expected options_file and weight_file"):
        Elmo()


def test_only_open_text_files_are_embedded(release: Release, tmp_path: Path) -> None:
    embedder = ElmoEmbedder(release.options_file, release.weights_file)
    text, output = tmp_path / "s.txt", tmp_path / "v.h5"
    text.write_text("the bank\n")
    for path in (text, str(text)):
        with pytest.raises(
            TypeError, match=r"open text file, got the path '.*s.txt'. Open it: with"
        ):
            embedder.embed_file(path, output)
    with text.open("rb") as file, pytest.raises(TypeError, match="line 1 is bytes; expected a str"):
        embedder.embed_file(file, output)
    with (
        text.open() as file,
        pytest.raises(InputError, match=r"s.txt is an input file; choose an"),
    ):
        embedder.embed_file(file, text)
    assert text.read_text() == "the bank\n"
    assert not output.exists()
    output.write_text("replaced, as in AllenNLP")
    with text.open() as file:
        embedder.embed_file(file, str(output))
    with h5py.File(output) as file:
        assert file["0"].shape == (3, 2, 12)


@pytest.mark.parametrize("batch_size", [0, -1, "2", 1.5])
def test_batch_size_is_positive(release: Release, tmp_path: Path, batch_size) -> None:
    embedder = ElmoEmbedder(release.options_file, release.weights_file)
    rule = "be an integer" if batch_size == 1.5 else "be at least 1"
    message = rf"batch_size must {rule}, got {batch_size!r}"
    with pytest.raises(InputError, match=message):
        list(embedder.embed_sentences([["a"]], batch_size))
    with pytest.raises(InputError, match=message):
        embedder.embed_file(["a"], tmp_path / "v.h5", batch_size=batch_size)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), -1])
def test_cuda_device_may_be_a_name(release: Release, device) -> None:
    embedder = ElmoEmbedder(release.options_file, release.weights_file, device)
    assert embedder.embed_sentence(["a"]).shape == (3, 1, 12)
    with pytest.raises(InputError, match="device must be auto, cpu, cuda or cuda:NUMBER"):
        ElmoEmbedder(release.options_file, release.weights_file, "gpu")


@pytest.mark.parametrize(
    ("ids", "got"),
    [
        ([["a"]], "list"),
        (torch.ones(2, 50, dtype=torch.long), r"a tensor of torch.int64 with shape \(2, 50\)"),
        (torch.ones(1, 2, 30, dtype=torch.long), r"a tensor of torch.int64 .*\(1, 2, 30\)"),
        (torch.ones(1, 2, 50), "a tensor of torch.float32"),
    ],
)
def test_invalid_ids_are_rejected(release: Release, ids, got: str) -> None:
    elmo = Elmo(release.options_file, release.weights_file, 1)
    with pytest.raises(
        TypeError, match=rf"expected character ids, .*, 50\), got {got}.*batch_to_ids"
    ):
        elmo(ids)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint16])
def test_ids_may_have_any_integer_type(release: Release, dtype: torch.dtype) -> None:
    """Oracle: the same ids as int64."""
    elmo = Elmo(
        release.options_file, release.weights_file, dropout=0, stateful=False,
        vocab_to_cache=["@@PADDING@@", "the", "bank"],
    )  # fmt: skip
    ids, words = batch_to_ids([["the", "bank"]]), torch.tensor([[2, 1]])
    for inputs in ([ids], [ids, words]):
        [expected] = elmo(*inputs)["elmo_representations"]
        [actual] = elmo(*(x.to(dtype) for x in inputs))["elmo_representations"]
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("wrong", [-1, 262, 300])
@pytest.mark.parametrize("of", ["a character", "a word"])
def test_ids_out_of_range_are_rejected(release: Release, wrong: int, of: str) -> None:
    ids = batch_to_ids([["the", "bank"]])
    ids[(0, 1, 2) if of == "a character" else (0, 1)] = wrong
    with pytest.raises(InputError, match=f"character ids must be from 0 to 261, got {wrong}"):
        Elmo(release.options_file, release.weights_file)(ids)


@pytest.mark.parametrize(
    "word_inputs",
    [
        np.array([[1, 2]]),
        [[1, 2]],
        torch.tensor([[1.0, 2.0]]),
        torch.tensor([[1j, 2j]]),
        torch.tensor([1, 2]),
        torch.tensor([[1, 2, 3]]),
        torch.tensor([[1, 2], [1, 2]]),
    ],
)
def test_word_inputs_are_integers(release: Release, word_inputs) -> None:
    elmo = Elmo(release.options_file, release.weights_file, vocab_to_cache=["", "a", "b"])
    with pytest.raises(
        TypeError, match=r"expected word_inputs to be a tensor of integers with shape \(1, 2\)"
    ):
        elmo(batch_to_ids([["a", "b"]]), word_inputs)


@torch.no_grad()
def test_negative_word_inputs_are_not_cached(release: Release) -> None:
    """Oracle: the characters, which AllenNLP uses if an index is out of range."""
    files = release.options_file, release.weights_file
    elmo = Elmo(*files, dropout=0, stateful=False, vocab_to_cache=["", "a", "b"])
    ids = batch_to_ids([["the", "bank"]])
    [actual] = elmo(ids, torch.tensor([[1, -1]]))["elmo_representations"]
    assert torch.equal(actual, elmo(ids)["elmo_representations"][0])


@pytest.mark.parametrize(
    ("words", "got"), [("abc", "str"), ({"a", "b"}, "set"), ({0: "a"}, "dict"), ([1], "the word 1")]
)
def test_vocab_to_cache_is_a_list_of_words(release: Release, words, got: str) -> None:
    with pytest.raises(TypeError, match=rf"vocab_to_cache to be a list of words.*, got {got}\."):
        Elmo(release.options_file, release.weights_file, vocab_to_cache=words)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"num_output_representations": 0},
            InputError,
            "representations must be at least 1, got 0",
        ),
        ({"num_output_representations": "2"}, InputError, "must be at least 1, got '2'"),
        ({"num_output_representations": 1.5}, InputError, "must be an integer, got 1.5"),
        ({"dropout": None}, InputError, "dropout must be at least 0, got None"),
        ({"dropout": "0.5"}, InputError, "dropout must be at least 0, got '0.5'"),
        ({"dropout": 1.5}, InputError, "dropout must be at most 1, got 1.5"),
        ({"scalar_mix_parameters": 1.0}, TypeError, "expected 3 scalar parameters.*, got 1.0"),
        ({"scalar_mix_parameters": [[0, 0, 0]]}, TypeError, "expected 3 scalar parameters"),
        ({"scalar_mix_parameters": [float("nan"), 0, 0]}, InputError, r"got \[nan, 0, 0\]"),
        ({"options_file": {}}, TypeError, "expected the path of a file, got dict"),
    ],
)
def test_invalid_arguments_are_rejected(
    release: Release, arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    files = {"options_file": release.options_file, "weight_file": release.weights_file}
    with pytest.raises(error, match=message):
        Elmo(**(files | arguments))


@pytest.mark.parametrize("dim", [-5, "8"])
def test_projection_dim_is_positive(release: Release, dim) -> None:
    with pytest.raises(InputError, match=f"projection_dim must be at least 1, got {dim!r}"):
        ElmoTokenEmbedder(release.options_file, release.weights_file, projection_dim=dim)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_bilm_has_no_dropout_in_training_mode(release: Release, requires_grad: bool) -> None:
    elmo = Elmo(
        release.options_file, release.weights_file, 1, requires_grad=requires_grad,
        dropout=0, stateful=False,
    ).train()  # fmt: skip
    ids = batch_to_ids([["the", "bank", "of", "a", "river"]])
    first, second = (elmo(ids)["elmo_representations"][0] for _ in range(2))
    assert torch.equal(first, second)


def test_state_dict_contains_each_weight_once(release: Release) -> None:
    elmo = Elmo(release.options_file, release.weights_file, 2)
    bilm = read_hdf5(release.weights_file, release.options_file)
    assert len(elmo.state_dict()) == len(bilm.state_dict()) + 2 * (3 + 1)  # two mixes


def test_mixes_are_loaded_from_an_allennlp_checkpoint(release: Release) -> None:
    elmo = Elmo(release.options_file, release.weights_file, 2)
    checkpoint = {
        f"scalar_mix_{n}.{name}": torch.tensor([value + n])
        for n in range(2)
        for name, value in {
            "gamma": 0.5, "scalar_parameters.0": 1.0, "scalar_parameters.1": 2.0,
            "scalar_parameters.2": 3.0,
        }.items()
    }  # fmt: skip
    task = torch.nn.ModuleDict({"embed": elmo})
    result = task.load_state_dict({f"embed.{k}": v for k, v in checkpoint.items()}, strict=False)
    assert not result.unexpected_keys
    for n, mix in enumerate((elmo.scalar_mix_0, elmo.scalar_mix_1)):
        assert mix.gamma.tolist() == [0.5 + n]
        assert [w.tolist() for w in mix.scalar_parameters] == [[1 + n], [2 + n], [3 + n]]


def test_scalar_mixes_are_modules_with_the_parameters_of_allennlp(release: Release) -> None:
    """Oracles: the names and shapes in AllenNLP's checkpoints; Eq. (1) in NumPy."""
    elmo = Elmo(release.options_file, release.weights_file, 2, dropout=0.0, stateful=False)
    trained = {name: tuple(p.shape) for name, p in elmo.named_parameters() if p.requires_grad}
    assert trained == {
        f"scalar_mix_{n}.{name}": (1,)
        for n in range(2)
        for name in ("gamma", *(f"scalar_parameters.{j}" for j in range(3)))
    }
    with torch.no_grad():
        elmo.scalar_mix_1.gamma.fill_(0.5)
        for weight, value in zip(elmo.scalar_mix_1.scalar_parameters, (1, 2, 3), strict=True):
            weight.fill_(value)
    weights = np.exp([1, 2, 3]) / np.exp([1, 2, 3]).sum()
    tensors = [torch.randn(2, 5, 4) for _ in range(3)]
    expected = 0.5 * sum(w * x.numpy() for w, x in zip(weights, tensors, strict=True))
    np.testing.assert_allclose(elmo.scalar_mix_1(tensors).detach(), expected, atol=1e-6)
    layers, _ = released_bilm.embed(["the", "bank"], release.weights, release.options)
    mixed = elmo(batch_to_ids([["the", "bank"]]))["elmo_representations"][1]
    expected = 0.5 * np.einsum("j,jtd->td", weights, layers[:, 1:-1])
    np.testing.assert_allclose(mixed[0].detach(), expected, atol=2e-6)
    for parameter in elmo.scalar_mix_0.parameters():
        parameter.requires_grad = False  # a common way to freeze a mix
    mixed = elmo(batch_to_ids([["the", "bank"]]))["elmo_representations"]
    assert [x.requires_grad for x in mixed] == [False, True]
    with pytest.raises(InputError, match="expected 3 tensors to mix, got 2"):
        elmo.scalar_mix_0(tensors[:2])
    with pytest.raises(InputError, match="expected 3 scalar parameters"):
        Elmo(release.options_file, release.weights_file, scalar_mix_parameters=[1.0])


def test_elmo_can_be_copied_and_pickled(release: Release) -> None:
    elmo = Elmo(release.options_file, release.weights_file, 1, dropout=0.0)
    ids = batch_to_ids([["the", "bank"]])
    copies = [copy.deepcopy(elmo), pickle.loads(pickle.dumps(elmo))]
    [expected] = elmo(ids)["elmo_representations"]
    for other in copies:
        [actual] = other(ids)["elmo_representations"]
        assert torch.equal(actual, expected)
        other.bilm.load_state_dict({k: v + 1 for k, v in other.bilm.state_dict().items()})
        other.refresh()
        other.reset_states()
        assert not torch.equal(other(ids)["elmo_representations"][0], expected)


def test_token_embedder_equals_a_projected_elmo(release: Release) -> None:
    """Oracle: `Elmo` with the same files, and the projection by `torch.nn.functional.linear`."""
    files = release.options_file, release.weights_file
    ids = batch_to_ids([["the", "bank"], ["a"]])
    [expected] = Elmo(*files, 1, dropout=0)(ids)["elmo_representations"]
    plain = ElmoTokenEmbedder(*files, dropout=0)
    assert torch.equal(plain(ids), expected)
    assert not torch.equal(plain(ids), expected)  # starts from the state of the first call
    stateless = ElmoTokenEmbedder(*files, dropout=0, stateful=False)
    assert torch.equal(stateless(ids), expected)
    assert torch.equal(stateless(inputs=ids), expected)  # the name in AllenNLP 0.9
    projected = ElmoTokenEmbedder(*files, dropout=0, projection_dim=5)
    weight, bias = projected._projection.parameters()
    torch.testing.assert_close(projected(ids), torch.nn.functional.linear(expected, weight, bias))
    assert (plain.get_output_dim(), projected.get_output_dim()) == (expected.shape[-1], 5)


@pytest.mark.parametrize("constructor", [Elmo, ElmoEmbedder, ElmoTokenEmbedder])
def test_urls_and_missing_paths_are_rejected(constructor) -> None:
    with pytest.raises(InputError, match="download the two files and pass their paths"):
        constructor()
    with pytest.raises(InputError, match="is a URL; download the file first"):
        constructor("https://example.org/options.json", "https://example.org/weights.hdf5")


@pytest.mark.parametrize("constructor", [Elmo, ElmoEmbedder, ElmoTokenEmbedder])
@pytest.mark.parametrize("name", ["weights.th", "model.tar.gz"])
def test_checkpoints_are_not_weight_files(release: Release, constructor, name: str) -> None:
    with pytest.raises(InputError, match=rf"{name} is a trained .* weights\.th into your model"):
        constructor(release.options_file, release.weights_file.with_name(name))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_missing_gpu_is_rejected(release: Release) -> None:
    with pytest.raises(InputError, match="PyTorch finds 0 GPUs"):
        ElmoEmbedder(release.options_file, release.weights_file, cuda_device=0)
