"""Samples of data files. Oracles: files written by hand; the readers of the tasks."""

import json
import lzma
from pathlib import Path

import pytest

from elmore.analysis.training.samples import (
    Format,
    read_units,
    split_articles,
    split_pairs,
    write_sample,
    write_share,
)
from elmore.errors import InputError
from elmore.tasks.conll2012 import read_documents
from elmore.tasks.ner.data import read_entities
from elmore.tasks.qa.data import read_questions

CONTENTS: dict[Format, str] = {
    "lines": "".join(f"{n}\n" for n in range(1000)),
    "table": "header\n" + "".join(f"{n}\n" for n in range(1000)),
    "sentences": "-DOCSTART- -X- O O\n\n" + "".join(f"{n} O\n. O\n\n" for n in range(1000)),
}


def article(title: str, *questions: str) -> dict:
    answers = [{"text": "London", "answer_start": 0}]
    paragraphs = [
        {"context": f"London {title} .", "qas": [{"question": q, "answers": answers}]}
        for q in questions
    ]
    return {"title": title, "paragraphs": paragraphs}


def write_squad(path: Path, *articles: dict) -> Path:
    path.write_text(json.dumps({"version": "1.1", "data": articles}))
    return path


@pytest.mark.parametrize("form", CONTENTS)
def test_sample_has_distinct_units_in_their_order(tmp_path: Path, form: Format) -> None:
    source, target = tmp_path / "all.xz", tmp_path / "sample"
    source.write_bytes(lzma.compress(CONTENTS[form].encode()))
    write_sample(source, target, form, 30)
    assert read_units(target, form).header == read_units(source, form).header
    numbers = [int(unit.split()[0]) for unit in read_units(target, form).units]
    assert len(numbers) == 30
    assert numbers == sorted(set(numbers))
    write_sample(source, tmp_path / "again", form, 30)
    assert (tmp_path / "again").read_text() == target.read_text()


def test_smaller_share_is_part_of_a_larger_one(tmp_path: Path) -> None:
    source = tmp_path / "train"
    source.write_text(CONTENTS["lines"])

    def share(size: float, seed: int) -> list[str]:
        write_share(source, tmp_path / "share", "lines", size, seed)
        return (tmp_path / "share").read_text().split()

    assert len(share(0.3, seed=0)) == 300
    assert set(share(0.1, seed=0)) < set(share(0.3, seed=0))
    assert set(share(0.3, seed=1)) != set(share(0.3, seed=0))


@pytest.mark.parametrize(
    ("share", "distinct", "passes"), [(0.0011, 2, 45), (0.01, 10, 5), (0.05, 50, 1), (0.1, 100, 1)]
)
def test_small_shares_are_repeated(
    tmp_path: Path, share: float, distinct: int, passes: int
) -> None:
    source = tmp_path / "train"
    source.write_text(CONTENTS["lines"])
    write_share(source, tmp_path / "share", "lines", share, seed=0)
    lines = (tmp_path / "share").read_text().split()
    assert len(set(lines)) == distinct
    assert all(lines.count(line) == passes for line in set(lines))


def test_samples_have_the_format_of_their_task(tmp_path: Path) -> None:
    conll = tmp_path / "eng.train"
    conll.write_text(CONTENTS["sentences"])
    write_sample(conll, tmp_path / "ner", "sentences", 5)
    assert len(read_entities(tmp_path / "ner")) == 5

    word = "\t".join(["doc", "0", "0", "Go", "VB", "*", "go", "01", "-", "-", "*", "(V*)", "-"])
    documents = "".join(
        f"#begin document (d{n}); part 000\n{word}\n\n{word}\n\n#end document\n" for n in range(9)
    )
    (tmp_path / "srl").write_text(documents)
    write_sample(tmp_path / "srl", tmp_path / "docs", "documents", 2)
    assert [len(document.sentences) for document in read_documents(tmp_path / "docs")] == [2, 2]
    write_sample(tmp_path / "srl", tmp_path / "sentences", "sentences", 3)
    assert sum(len(d.sentences) for d in read_documents(tmp_path / "sentences")) == 3

    squad = write_squad(tmp_path / "squad", article("a", "1 ?", "2 ?"), article("b", "3 ?"))
    write_sample(squad, tmp_path / "qa", "squad", 2)
    assert len(read_questions(tmp_path / "qa")) == 2


def test_squad_is_split_by_article(tmp_path: Path) -> None:
    source = write_squad(
        tmp_path / "dev", article("b", "2 ?"), article("a", "0 ?", "1 ?"), article("c", "3 ?")
    )
    dev, test = tmp_path / "dev.json", tmp_path / "test.json"
    split_articles(source, dev, test)
    assert [example.question.text for example in read_questions(dev)] == ["0 ?", "1 ?", "3 ?"]
    assert [example.question.text for example in read_questions(test)] == ["2 ?"]


def test_snli_dev_set_is_split_without_unlabeled_pairs(tmp_path: Path) -> None:
    labels = ["-", *["neutral"] * 3, "-", *["entailment"] * 10]
    lines = [json.dumps({"gold_label": label, "n": n}) for n, label in enumerate(labels)]
    (tmp_path / "dev.jsonl").write_text("\n".join(lines) + "\n")
    learned, held_out = tmp_path / "learned", tmp_path / "held_out"
    split_pairs(tmp_path / "dev.jsonl", learned, held_out, 10)
    assert learned.read_text().splitlines() == lines[1:4]
    assert held_out.read_text().splitlines() == lines[5:]


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    for content in ("{", "[]", '{"data": [{}]}'):
        path.write_text(content)
        with pytest.raises(InputError, match=r"damaged\.json is damaged, or not in the format"):
            split_articles(path, tmp_path / "a", tmp_path / "b")
    path.write_text("{}\n")
    with pytest.raises(InputError, match=r"damaged\.json: '\{\}' has no gold_label"):
        split_pairs(path, tmp_path / "a", tmp_path / "b", 1)
