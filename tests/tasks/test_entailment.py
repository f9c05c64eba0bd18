"""Entailment. Oracles: handwritten pairs, ESIM in NumPy, a tiny learnable dataset."""

import json
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from elmore.bilm.model import BiLM
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.signals import InterruptedRunError
from elmore.tasks import get_task, load_task, read_task_config, train_task
from elmore.tasks.config import ElmoConfig, WordsConfig
from elmore.tasks.entailment.config import ESIMConfig
from elmore.tasks.entailment.data import EntailmentExample, read_pairs
from elmore.tasks.entailment.model import ESIM, EntailmentBatch, balanced_weights
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import WordEncoder, WordIndex, Words
from elmore.text.tokenize import get_tokenizer
from tests.tasks.conftest import train_on
from tests.tasks.test_ner import interrupt_at

MOSES = get_tokenizer()
ENTAILMENT = get_task("entailment")
PAIR = EntailmentExample(["A", "man", "sings", "."], ["He", "is", "n't", "mute"], "neutral")


def test_reads_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "snli.jsonl"
    rows = [
        {"gold_label": "neutral", "sentence1": "A man sings.", "sentence2": "He isn't mute"},
        {"gold_label": "-", "sentence1": "A man sings.", "sentence2": "Maybe."},
        {
            "gold_label": "neutral",
            "sentence1": "not read",
            "sentence1_binary_parse": "( ( A man ) ( sings . ) )",
            "sentence2": "not read",
            "sentence2_binary_parse": "( He ( ( is n't ) mute ) )",
        },
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert read_pairs(path, MOSES) == [PAIR, PAIR]


@pytest.mark.parametrize(
    "header",
    [
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment",
        "pair_ID\tsentence_A\tsentence_B\tmore\tentailment_label",
        "captionID\tsentence1\tsentence2\tmore\tgold_label",
    ],
)
def test_reads_tables_with_a_header(tmp_path: Path, header: str) -> None:
    path = tmp_path / "sick.txt"
    path.write_text(f"{header}\n1\tA man sings .\tHe is n't mute\t4.5\tNEUTRAL\n")
    assert read_pairs(path, MOSES) == [PAIR]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"gold_label": "neutral"', "line 1: not JSON"),
        ('{"sentence1": "a", "sentence2": "b"}', "line 1: no label; expected one in gold_label"),
        ('{"gold_label": " ", "sentence1": "a", "sentence2": "b"}', "line 1: no label; expected"),
        (
            '{"gold_label": "neutral", "sentence1": "\\ud800", "sentence2": "b"}',
            "line 1: the unpaired",
        ),
        ('{"gold_label": "neutral", "sentence1": "a"}', "line 1: no sentence; .*sentence2"),
        (
            '{"gold_label": 1, "sentence1": "a", "sentence2": "b"}',
            "line 1: gold_label must be a string, got 1",
        ),
        (
            '{"gold_label": "neutral", "sentence1": "a", "sentence2": 3}',
            "line 1: sentence2 must be a string, got 3",
        ),
        (
            "A man sings .\tHe does\tneutral",
            "line 1: expected JSON lines .* or a .* header",
        ),
        (
            "sentence_A\tsentence_B\tentailment_judgment\na\tb",
            "line 2: expected 3 tab-separated columns.* got 2",
        ),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=rf"bad\.txt, {message}"):
        read_pairs(path, MOSES)


def test_parses_tab_separated_and_json_lines() -> None:
    expected = PAIR._replace(label="")
    assert ENTAILMENT.parse("A man sings.\tHe isn't mute", MOSES) == expected
    for names in (("sentence1", "sentence2"), ("premise", "hypothesis")):
        pair = dict(zip(names, ("A man sings.", "He isn't mute"), strict=True))
        assert ENTAILMENT.parse(json.dumps(pair), MOSES) == expected
    for line in ("A man sings.", "A man sings.\t", "a\tb\tc", '{"sentence1": "a"}', "{"):
        with pytest.raises(InputError, match=r"tab and a hypothesis|no sentence|not JSON"):
            ENTAILMENT.parse(line, MOSES)
    with pytest.raises(InputError, match=r"^sentence2 must be a string, got 3$"):
        ENTAILMENT.parse('{"sentence1": "a", "sentence2": 3}', MOSES)


@pytest.mark.parametrize(
    "change", ["network.hidden=0", "network.dropout=1.0", "data.class_weights=some"]
)
def test_invalid_settings_are_rejected(change: str) -> None:
    with pytest.raises(InputError, match=change.split("=")[0].split(".")[1]):
        read_task_config("entailment", None, [change])


def esim(weights: list[float] | None = None) -> tuple[ESIM, WordEncoder]:
    index = WordIndex(list("abcdef"), [])
    known = WordVectors([], np.zeros((0, 6), np.float32))
    words = Words(WordsConfig(), ElmoConfig(place="none"), index, known, num_layers=0, elmo_dim=0)
    classes = ["contradiction", "entailment", "neutral"]
    model = ESIM(ESIMConfig(hidden=4), words, classes, torch.tensor(weights or [1.0, 1.0, 1.0]))
    encode = WordEncoder(index, None, with_characters=False, device=torch.device("cpu"))
    return model.eval(), encode


def pair(premise: str, hypothesis: str, label: str = "") -> EntailmentExample:
    return EntailmentExample(list(premise), list(hypothesis), label)


def collate(examples: list[EntailmentExample], encode: WordEncoder, model: ESIM) -> EntailmentBatch:
    return ENTAILMENT.collate(examples, encode, {"classes": model.classes})


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis, keepdims=True)


def test_network_matches_the_equations() -> None:
    """Oracle: the numbered equations of the ESIM paper in NumPy; the LSTMs are PyTorch's."""
    model, encode = esim()

    def lstm(layer: torch.nn.LSTM, x: np.ndarray) -> np.ndarray:
        return layer(torch.from_numpy(x.astype(np.float32))[None])[0][0].numpy()

    def linear(layer: torch.nn.Linear, x: np.ndarray) -> np.ndarray:
        return x @ layer.weight.numpy().T + layer.bias.numpy()

    def vectors(tokens: str) -> np.ndarray:
        return model.words.table.new[[encode.index.row(t) for t in tokens]].numpy()

    def compose(x: np.ndarray, other: np.ndarray) -> np.ndarray:
        m = np.concatenate([x, other, x - other, x * other], -1)  # (14), (15)
        v = lstm(model.compose.rnn, np.maximum(linear(model.project, m), 0))  # (16) to (18)
        return np.concatenate([v.mean(0), v.max(0)])  # (18), (19)

    with torch.no_grad():
        a, b = (lstm(model.encode.rnn, vectors(t)) for t in ("abcf", "da"))  # (1), (2)
        e = a @ b.T  # (11)
        v = np.concatenate([compose(a, softmax(e, 1) @ b), compose(b, softmax(e, 0).T @ a)])
        hidden = np.maximum(linear(model.classify[1], v), 0)
        expected = softmax(linear(model.classify[4], hidden), 0)

        [actual] = model.predict(collate([pair("abcf", "da")], encode, model))

    assert list(actual.values()) == pytest.approx(expected.tolist(), abs=1e-5)


def test_predictions_do_not_depend_on_the_batch() -> None:
    model, encode = esim()
    pairs = [pair("abc", "f"), pair("f", "abcdef"), pair("ebcdafab", "ab"), pair("a", "")]
    with torch.no_grad():
        together = model.predict(collate(pairs, encode, model))
        in_reverse = model.predict(collate(pairs[::-1], encode, model))[::-1]
        separate = [model.predict(collate([p], encode, model))[0] for p in pairs]
        [swapped] = model.predict(collate([pair("f", "abc")], encode, model))
    for other in (in_reverse, separate):
        for first, second in zip(together, other, strict=True):
            assert first == pytest.approx(second, abs=1e-5)
    # Premise and hypothesis are not interchangeable.
    assert swapped != pytest.approx(together[0], abs=1e-5)


def test_balanced_class_weights_scale_the_loss() -> None:
    """Oracle: n / (K * n_k), scikit-learn's definition of balanced class weights."""
    counts = [2, 3, 1]
    weights = balanced_weights(counts)
    assert weights.tolist() == pytest.approx([6 / (3 * n) for n in counts])
    model, encode = esim(weights.tolist())
    classes = ["contradiction"] * 2 + ["entailment"] * 3 + ["neutral"]
    pairs = [pair("abc"[: i % 3 + 1], "def", label) for i, label in enumerate(classes)]
    labels = ENTAILMENT.labels(pairs)
    assert labels == {"classes": model.classes, "counts": ["2", "3", "1"]}
    with torch.no_grad():
        batch = collate(pairs, encode, model)
        actual = model.predict(batch)
        loss = model(batch).item()
    weight = dict(zip(model.classes, weights.tolist(), strict=True))
    terms = [
        -weight[label] * np.log(answer[label])
        for label, answer in zip(classes, actual, strict=True)
    ]
    assert loss == pytest.approx(np.mean(terms), abs=1e-5)


@pytest.fixture
def tiny_dataset(tmp_path: Path) -> Path:
    """Hypotheses that repeat the premise, negate it, or say something else."""
    path = tmp_path / "tiny.jsonl"
    hypotheses = {
        "entailment": "The {noun} can {verb} .",
        "contradiction": "The {noun} ca n't {verb} .",
        "neutral": "The {noun} is sad .",
    }
    with path.open("w") as file:
        for noun, verb in product(["man", "girl", "dog"], ["sing", "sleep", "eat"]):
            for label, hypothesis in hypotheses.items():
                row = {"gold_label": label, "sentence1": f"A {noun} can {verb} ."}
                row["sentence2"] = hypothesis.format(noun=noun, verb=verb)
                file.write(json.dumps(row) + "\n")
    return path


TINY = [
    "network.hidden=24", "network.dropout=0.0", "network.rnn_dropout=0.0",
    "network.attention_dropout=0.0", "training.lr=1e-2", "training.lr_patience=9",
    "training.batch_size=5", "training.epochs=12", "training.patience=12",
]  # fmt: skip


@pytest.mark.parametrize("weights", ["none", "balanced"])
def test_learns_a_tiny_dataset(
    tiny_dataset: Path, glove: Path, tmp_path: Path, weights: str
) -> None:
    settings = ["elmo.place=none", f"words.vectors={glove}", f"data.class_weights={weights}"]
    summary = train_on("entailment", tiny_dataset, tmp_path / "run", [*TINY, *settings])
    assert summary["scores"]["dev"]["accuracy"] >= 0.97


def test_learns_with_elmo_and_reloads(
    tiny_dataset: Path, glove: Path, tmp_path: Path, model: Path
) -> None:
    settings = [f"elmo.model={model}", f"words.vectors={glove}"]
    summary = train_on("entailment", tiny_dataset, tmp_path / "run", [*TINY, *settings])
    assert summary["scores"]["dev"]["accuracy"] >= 0.97
    assert set(summary["elmo"]) == {"input", "output"}

    trained = load_task(tmp_path / "run", device="cpu")
    assert trained.evaluate(tiny_dataset) == summary["scores"]["dev"]
    task = trained.task
    example = task.parse("A man can sing.\tThe man can't sing.", MOSES)
    [answer] = trained.predict([example])
    actual = task.as_json(example, answer, trained.config)
    assert actual["label"] == "contradiction"
    assert sum(actual["probabilities"].values()) == pytest.approx(1)
    assert actual["hypothesis"] == ["The", "man", "ca", "n't", "sing", "."]
    pair = ("A man can sing.", "The man can't sing.")
    for result in (trained(*pair), trained("\t".join(pair)), *trained([pair])):
        assert json.loads(json.dumps(result)) == actual
    with pytest.raises(InputError, match="expected a premise, a tab and a hypothesis"):
        trained("A man can sing.", "")
    with pytest.raises(TypeError, match="has 3 texts; entailment expects 2: premise, hypothesis"):
        trained(*pair, "He can.")
    shown = task.show(example._replace(premise=["[a]"]), answer)
    assert "contradiction" in shown
    assert "\\[a]" in shown


@pytest.mark.parametrize(
    ("tokenizer", "premise"), [("moses", ["It", "rains", "."]), ("whitespace", ["It", "rains."])]
)
def test_predict_uses_the_tokenizer_of_training(
    run, tiny_dataset: Path, tmp_path: Path, tokenizer: str, premise: list[str]
) -> None:
    settings = ["elmo.place=none", f"data.tokenizer={tokenizer}", "training.epochs=1"]
    config = read_task_config("entailment", None, [*TINY, *settings])
    folder = tmp_path / "run"
    train_task(
        "entailment",
        folder,
        train=tiny_dataset,
        dev=str(tiny_dataset),
        config=config,
        device="cpu",
        progress=False,
    )
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("It rains.\tIt pours.\n")
    assert json.loads(run("predict", folder, pairs).out)["premise"] == premise


@pytest.mark.parametrize(
    ("changes", "premise"),
    [
        ([], ["서울에", "간다", "."]),
        (["data.language=en"], ["서", "울", "에", "간", "다", "."]),
    ],
)
def test_sentences_are_tokenized_in_the_language_of_the_bilm(
    tmp_path: Path, bilm: BiLM, changes: list[str], premise: list[str]
) -> None:
    """Oracle: the rules of Moses, which split Hangul words for English but not for Korean."""
    Embedder(bilm, device="cpu", language="ko").save(tmp_path / "ko")
    pairs = tmp_path / "pairs.tsv"
    rows = [f"서울에 간다.\t집에 간다.\t{label}" for label in ("neutral", "contradiction")]
    pairs.write_text("\n".join(["sentence1\tsentence2\tgold_label", *rows]), encoding="utf-8")
    settings = [*TINY, f"elmo.model={tmp_path / 'ko'}", "training.epochs=2", *changes]
    config = read_task_config("entailment", None, settings)
    for resume, expectation in (
        (False, pytest.raises(InterruptedRunError)),
        (True, nullcontext()),
    ):
        with expectation:
            train_task(
                "entailment",
                tmp_path / "run",
                train=pairs,
                dev=pairs,
                config=config,
                device="cpu",
                resume=resume,
                report=(lambda _: None) if resume else interrupt_at(1),
            )
    trained = load_task(tmp_path / "run", device="cpu")
    assert [example.premise for example in trained.read(pairs)] == [premise, premise]
    assert trained("서울에 간다.\t집에 간다.")["premise"] == premise


def test_sick_has_the_published_counts(tasks: Path) -> None:
    """Oracle: the counts of Marelli et al. (2014)."""
    pairs = read_pairs(tasks / "snli" / "SICK_trial.txt.xz", MOSES)
    assert len(pairs) == 500
    assert {p.label for p in pairs} == {"contradiction", "entailment", "neutral"}
