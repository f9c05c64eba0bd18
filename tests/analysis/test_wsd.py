"""Word sense disambiguation. Oracles: senses by hand; averages and cosines word by word."""

import lzma
import random
import tarfile
from pathlib import Path

import numpy as np
import pytest

from elmore.analysis.data_files import find_files
from elmore.analysis.wsd import (
    WSD_FILES,
    Instance,
    Lexeme,
    SenseAverages,
    WsdSentence,
    average_senses,
    disambiguate,
    f1,
    instances_of,
    measure_wsd,
    read_first_senses,
    read_wsd,
)
from elmore.embedder import Embedder
from elmore.errors import InputError
from tests.analysis.toy import SETS, ToyEmbedder, write_wsd

DATA = """<?xml version="1.0" encoding="UTF-8" ?>
<corpus lang="en">
<text id="d0">
<sentence id="d0.s0">
<wf lemma="the" pos="DET">The</wf>
<instance id="d0.s0.t0" lemma="New_York" pos="NOUN">New_York</instance>
<instance id="d0.s0.t1" lemma="take_place" pos="VERB">took place</instance>
<wf lemma="_" pos=".">_</wf>
<wf lemma="&amp;" pos=".">R&amp;D</wf>
</sentence>
<sentence id="d0.s1">
<wf>...</wf>
</sentence>
</text>
</corpus>
"""
KEYS = "d0.s0.t0 new_york%1:15:00::\nd0.s0.t1 take_place%2:30:00:: take_place%2:30:01::\n"
INDEX = """\
bass%1:05:00:: 02566109 2 0
bass%1:07:01:: 04986883 1 2
bass%3:00:00:: 01212469 2 0
bass%5:00:00:low:03 01212470 1 0
deep%4:02:00:: 00165018 1 5
play%2:33:00:: 01072949 1 75
"""
NOUN, ADJ = Lexeme("bass", "NOUN"), Lexeme("bass", "ADJ")


def write(folder: Path, data: str = DATA, keys: str = KEYS) -> tuple[Path, Path]:
    (folder / "t.data.xml").write_text(data, encoding="utf-8")
    (folder / "t.gold.key.txt").write_text(keys, encoding="utf-8")
    return folder / "t.data.xml", folder / "t.gold.key.txt"


def instance(lexeme: Lexeme, position: int, *senses: str) -> Instance:
    return Instance(lexeme, slice(position, position + 1), senses)


def test_sentences_and_senses_are_read(tmp_path: Path) -> None:
    first, second = read_wsd(*write(tmp_path))
    assert first.tokens == ["The", "New", "York", "took", "place", "_", "R&D"]
    assert first.instances == [
        Instance(Lexeme("new_york", "NOUN"), slice(1, 3), ("new_york%1:15:00::",)),
        Instance(
            Lexeme("take_place", "VERB"),
            slice(3, 5),
            ("take_place%2:30:00::", "take_place%2:30:01::"),
        ),
    ]
    assert second == WsdSentence(["..."], [])
    assert instances_of([first, second]) == first.instances


def test_compressed_files_are_read(tmp_path: Path) -> None:
    plain = write(tmp_path)
    compressed = [path.with_name(path.name + ".xz") for path in plain]
    for path, target in zip(plain, compressed, strict=True):
        target.write_bytes(lzma.compress(path.read_bytes()))
    assert read_wsd(*compressed) == read_wsd(*plain)


@pytest.mark.parametrize(
    ("data", "keys", "message"),
    [
        (DATA[:300], KEYS, r"t\.data\.xml is not well-formed XML \(.*line 8"),
        ("not XML", KEYS, r"t\.data\.xml is not well-formed XML \(.*line 1"),
        ("", KEYS, "not well-formed XML"),
        ("<html></html>", KEYS, "no sentence; expected <sentence>"),
        (DATA.replace(">New_York<", "><"), KEYS, "line 6: <instance> is empty; expected a word"),
        (DATA.replace(' lemma="New_York"', ""), KEYS, "line 6: <instance> without lemma; expected"),
        (DATA.replace('"NOUN"', '"NN"'), KEYS, "line 6: pos is 'NN'; expected NOUN, VERB, ADJ"),
        (DATA, KEYS.splitlines()[0], r"gold\.key\.txt: no sense for 'd0\.s0\.t1'.*xml, line 7"),
        (DATA, "d0.s0.t0\n", r"gold\.key\.txt, line 1: 'd0\.s0\.t0'; expected an instance and"),
        (DATA, "\nd0.s0.t0 bass\n", "line 2: 'bass' is not a sense key; expected one such as"),
        (DATA, "d0.s0.t0 bass%9:05:00::\n", "line 1: 'bass%9:05:00::' is not a sense key"),
    ],
)
def test_malformed_files_are_rejected(tmp_path: Path, data: str, keys: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_wsd(*write(tmp_path, data, keys))


def test_first_sense_depends_on_the_part_of_speech(tmp_path: Path) -> None:
    (tmp_path / "index.sense").write_text(INDEX)
    assert read_first_senses(tmp_path / "index.sense") == {
        NOUN: "bass%1:07:01::",
        ADJ: "bass%5:00:00:low:03",  # a satellite is an adjective
        Lexeme("deep", "ADV"): "deep%4:02:00::",
        Lexeme("play", "VERB"): "play%2:33:00::",
    }


@pytest.mark.parametrize(
    "line", ["bass%1:05:00:: 02566109 2", "bass%1:05:00:: 1 2 x", "", "b 1 1 1"]
)
def test_malformed_sense_index_is_rejected(tmp_path: Path, line: str) -> None:
    (tmp_path / "index.sense").write_text(INDEX + line + "\n")
    with pytest.raises(InputError, match=r"index\.sense, line 7: .*expected"):
        read_first_senses(tmp_path / "index.sense")


def random_text(seed: int, num_sentences: int) -> list[WsdSentence]:
    """Sample sentences with instances of "bass", "deep", both or neither, with random senses."""
    rng = random.Random(seed)
    sentences = []
    for _ in range(num_sentences):
        tokens = rng.choices(["low", "fish", "sea", "plays", "a", "the", "jazz"], k=6)
        tokens[2:4] = ["Bass", "Strait"]
        tokens.append(rng.choice(["deep", "deeply", "deepest"]))
        senses = [f"bass%1:0{rng.randint(1, 4)}:00::"]
        if rng.random() < 0.3:
            senses.append("bass%1:09:00::")
        bass = Instance(NOUN, slice(2, 4), tuple(senses))
        deep = instance(Lexeme("deep", "ADV"), 6, f"deep%4:0{rng.randint(1, 2)}:00::")
        sentences.append(WsdSentence(tokens, rng.choice([[bass], [deep], [bass, deep], []])))
    return sentences


def expected_averages(embedder: Embedder, sentences: list[WsdSentence]) -> dict[str, np.ndarray]:
    """Collect all vectors of each sense, one sentence at a time, and average them."""
    by_sense: dict[str, list[np.ndarray]] = {}
    for sentence in sentences:
        [vectors] = embedder.embed([sentence.tokens], layers="all")
        for _, words, senses in sentence.instances:
            span = [vectors[:, i].astype(float) for i in range(words.start, words.stop)]
            for sense in senses:
                by_sense.setdefault(sense, []).append(sum(span) / len(span))
    return {sense: np.mean(vectors, axis=0) for sense, vectors in by_sense.items()}


def test_averages_equal_the_mean_of_all_vectors_of_a_sense(embedder: Embedder) -> None:
    train = random_text(0, 60)
    averages = average_senses(embedder, iter(train))
    expected = expected_averages(embedder, train)
    assert averages.vectors.keys() == expected.keys()
    for sense, vectors in averages.vectors.items():
        assert vectors.shape == (embedder.num_layers, embedder.dim)
        np.testing.assert_allclose(vectors, expected[sense], atol=1e-5)
    assert {sense for senses in averages.senses.values() for sense in senses} == expected.keys()


def test_predicted_sense_has_the_largest_cosine(embedder: Embedder) -> None:
    train, test = random_text(0, 60), random_text(1, 30)
    predictions = disambiguate(embedder, test, average_senses(embedder, train), {})
    averages = expected_averages(embedder, train)
    assert len(predictions) == embedder.num_layers
    distinct = set()
    for layer, layer_predictions in enumerate(predictions):
        remaining = iter(layer_predictions)
        for sentence in test:
            vectors = embedder.embed([sentence.tokens], layers=layer)[0].astype(float)
            for lexeme, words, _ in sentence.instances:
                v = vectors[words.start : words.stop].sum(axis=0)
                cosines = {
                    sense: u[layer] @ v / np.linalg.norm(u[layer]) / np.linalg.norm(v)
                    for sense, u in averages.items()
                    if sense.startswith(f"{lexeme.lemma}%")
                }
                prediction = next(remaining)
                assert cosines[prediction] == pytest.approx(max(cosines.values()), abs=2e-5)
                distinct.add((layer, prediction))
        assert next(remaining, None) is None
    assert len(distinct) > 10  # the predictions vary


def test_most_frequent_sense_wins_a_tie(embedder: Embedder) -> None:
    """In layer 0, all senses of the same word form have the same vector."""
    senses = ["bass%1:01:00::", "bass%1:07:01::", "bass%1:05:00::", "bass%1:07:01::"]
    train = [
        WsdSentence([before, "bass"], [instance(NOUN, 1, sense)])
        for before, sense in zip(["a", "low", "the", "sea"], senses, strict=True)
    ]
    averages = average_senses(embedder, train)
    assert averages.senses[NOUN][0] == "bass%1:07:01::"
    sentence = WsdSentence(["The", "bass"], [instance(NOUN, 1, "bass%1:05:00::")])
    assert disambiguate(embedder, [sentence], averages, {})[0] == ["bass%1:07:01::"]


def test_nearest_sense_is_found_separately_in_each_layer() -> None:
    vectors = {
        "bass%1:05:00::": np.array([[3, 0], [0, 0.1]], dtype=np.float32),
        "bass%1:07:01::": np.array([[1, 1], [9, 1]], dtype=np.float32),
    }
    averages = SenseAverages(vectors, {NOUN: [*vectors]})
    senses = averages.nearest(NOUN, np.array([[0.1, 0.09], [0, 5]], dtype=np.float32))
    assert senses == ["bass%1:07:01::", "bass%1:05:00::"]


def test_rounding_error_does_not_break_a_tie() -> None:
    """The second sense is nearer by 5e-7, within rounding error; the first is more frequent."""
    vectors = {
        "bass%1:05:00::": np.array([[1, 1e-3]], dtype=np.float32),
        "bass%1:07:01::": np.array([[1, 0]], dtype=np.float32),
    }
    averages = SenseAverages(vectors, {NOUN: [*vectors]})
    assert averages.nearest(NOUN, np.array([[2, 0]], dtype=np.float32)) == ["bass%1:05:00::"]


def test_unseen_lexemes_get_their_first_sense(embedder: Embedder) -> None:
    train = [WsdSentence(["a", "bass"], [instance(NOUN, 1, "bass%1:05:00::")])]
    sentence = WsdSentence(
        ["a", "bass", "drum", "zyx"],
        [
            instance(NOUN, 1, "bass%1:07:01::"),
            instance(ADJ, 1, "bass%5:00:00:low:03"),
            instance(Lexeme("zyx", "NOUN"), 3, "zyx%1:00:00::"),
        ],
    )
    first = {NOUN: "bass%1:07:01::", ADJ: "bass%5:00:00:low:03"}
    predictions = disambiguate(embedder, [sentence], average_senses(embedder, train), first)
    assert predictions == [["bass%1:05:00::", "bass%5:00:00:low:03", None]] * embedder.num_layers


def test_f1_accepts_any_of_several_gold_senses() -> None:
    instances = [
        instance(NOUN, 0, "a%1:", "b%1:"),
        instance(NOUN, 0, "c%1:"),
        instance(NOUN, 0, "d%1:"),
    ]
    assert f1(["b%1:", "c%1:", "x%1:"], instances) == pytest.approx(2 / 3)
    precision, recall = 1 / 2, 1 / 3
    expected = 2 * precision * recall / (precision + recall)
    assert f1(["b%1:", None, "x%1:"], instances) == pytest.approx(expected)
    with pytest.raises(InputError, match="no instance to score"):
        f1([], [])


def test_scores_of_all_sets_are_measured(embedder: Embedder, tmp_path: Path) -> None:
    write_wsd(tmp_path)
    result = measure_wsd(embedder, find_files(tmp_path, WSD_FILES))
    expected = {"ALL": 20, **dict.fromkeys(SETS, 0), "senseval2": 100}
    assert result.scores.pop("first sense") == expected
    assert list(result.scores) == ["layer 0", "layer 1", "layer 2"]
    for scores in result.scores.values():
        assert scores == dict.fromkeys(["ALL", *SETS], 100)
    assert result.details == {"instances": 5, "senses in SemCor": 1}


def test_first_and_top_layer_are_compared_only_if_they_differ(tmp_path: Path) -> None:
    write_wsd(tmp_path)
    files = find_files(tmp_path, WSD_FILES)
    one_layer = ToyEmbedder({"bass": [[1, 0], [0, 1]]})
    assert measure_wsd(one_layer, files).findings == ()
    two_layers = ToyEmbedder({"bass": [[1, 0], [0, 1], [1, 1]]})
    [found] = measure_wsd(two_layers, files).findings
    assert found.endswith("not confirmed (F1 100.0 and 100.0 on ALL).")


def test_archive_without_a_test_set_is_rejected(embedder: Embedder, tmp_path: Path) -> None:
    write_wsd(tmp_path)
    sets = tmp_path / "Evaluation_Datasets.tar.xz"
    with tarfile.open(sets) as archive:
        archive.extractall(tmp_path, filter="data")
    sets.unlink()
    (tmp_path / "Evaluation_Datasets" / "senseval3" / "senseval3.data.xml").unlink()
    with pytest.raises(InputError, match=r"Evaluation_Datasets: .*senseval3\.data\.xml not found"):
        measure_wsd(embedder, find_files(tmp_path, WSD_FILES))


def test_first_sense_baseline_equals_the_published_scores(tasks: Path, tmp_path: Path) -> None:
    """Oracle: the WordNet first-sense baseline of Raganato et al. (2017)."""
    with tarfile.open(tasks / "wsd" / "Evaluation_Datasets.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    first = read_first_senses(tasks / "wsd" / "index.sense.xz")
    published = {
        "senseval2": 66.8,
        "senseval3": 66.2,
        "semeval2007": 55.2,
        "semeval2013": 63.0,
        "semeval2015": 67.8,
        "ALL": 65.2,
    }
    for name, score in published.items():
        files = tmp_path / "Evaluation_Datasets" / name / name
        sentences = read_wsd(Path(f"{files}.data.xml"), Path(f"{files}.gold.key.txt"))
        instances = instances_of(sentences)
        assert round(100 * f1([first[i.lexeme] for i in instances], instances), 1) == score
