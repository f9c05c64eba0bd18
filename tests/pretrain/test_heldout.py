"""Overlap of held-out and training text. Oracle: Python's `in` on the list of sentences."""

from pathlib import Path

from elmore.pretrain.heldout import count_shared, split_heldout
from elmore.text.corpus import TextConfig, encode_corpus

TEXT = [f"word{i % 7} word{i % 5} end{i % 11}" for i in range(60)] + ["a", "a b c d e f g h"]


def test_no_heldout_sentence_is_trained_on(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n".join(TEXT * 3))
    lines = TextConfig(tokenizer="whitespace", sentences="lines")
    corpus = encode_corpus([tmp_path / "t.txt"], tmp_path / "c", lines, workers=1)
    heldout, training = split_heldout(corpus, 0.1, 1000)
    aside = {" ".join(words) for words in heldout}
    assert len(heldout) == int(0.1 * len(TEXT * 3))
    assert [(TEXT * 3)[i] for i in training] == [text for text in TEXT * 3 if text not in aside]
    assert len(split_heldout(corpus, 0.1, 4)[0]) == 4
    assert split_heldout(corpus, 0, 1000)[1].tolist() == list(range(len(TEXT * 3)))


def test_heldout_sentences_in_the_training_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n".join(TEXT))
    lines = TextConfig(tokenizer="whitespace", sentences="lines")
    corpus = encode_corpus([tmp_path / "t.txt"], tmp_path / "c", lines, workers=1)
    sentences = [
        *TEXT[::9],
        "word1 word2",
        "end3 word1 word1",
        "unseen words",
        "a b c d e f g",
        "a",
        "b",
    ]
    expected = sum(sentence in TEXT for sentence in sentences)
    assert count_shared(corpus, [sentence.split() for sentence in sentences]) == expected
    assert count_shared(corpus, [["unseen"]]) == 0
