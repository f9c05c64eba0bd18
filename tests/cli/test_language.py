"""A Korean model from pre-training to neighbors. Oracle: Korean text tokenized for Korean."""

import json
from pathlib import Path

import pytest

import elmore
from elmore.text.split import split_sentences
from tests.cli.conftest import assert_rejected
from tests.cli.test_training_commands import COMMON

TEXT = (
    "김연아는 한국의 피겨 선수다. 그녀는 서울에 산다.\n서울은 한국의 수도다. 김연아는 유명하다.\n"
)
SENTENCES = [elmore.tokenize(s, "moses", "ko") for s in split_sentences(TEXT, "ko")]
NUM_TOKENS = sum(len(words) + 1 for words in SENTENCES)
WARNING = "the model was trained on text that was tokenized by moses for the language ko"


@pytest.fixture
def korean(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that was pre-trained on Korean text."""
    monkeypatch.chdir(tmp_path)
    Path("ko.txt").write_text(TEXT * 8, encoding="utf-8")
    Path("new.txt").write_text(TEXT, encoding="utf-8")
    command = ("pretrain", "ko.txt", "-o", "ko", "--size", "tiny", "--language", "ko", *COMMON)
    result = run(*command, "--heldout", "new.txt")
    assert result.code == 0, result.err
    return Path("ko")


def tokens_of_perplexity(result) -> int:
    return json.loads(result.out)["tokens"]


def test_model_remembers_its_language_everywhere(run, korean: Path) -> None:
    recorded = {"tokenizer": "moses", "language": "ko"}
    assert json.loads((korean / "config.json").read_text())["text"] == recorded
    assert json.loads(run("info", "ko", "--json").out)["text"] == recorded
    elmo = elmore.load(korean)
    assert [tokens for tokens, _ in elmo.stream([TEXT])] == [elmore.tokenize(TEXT, "moses", "ko")]
    assert tokens_of_perplexity(run("perplexity", "ko", "new.txt", "--json")) == NUM_TOKENS
    tuned = run("finetune", "ko", "ko.txt", "-o", "tuned", *COMMON, "--heldout", "new.txt")
    assert tuned.code == 0, tuned.err
    assert 'language = "ko"' in Path("tuned/config.toml").read_text()
    elmo.save("saved")
    assert run("convert", "tuned", "-o", "converted").code == 0
    for name in ("tuned", "saved", "converted"):
        assert json.loads(Path(name, "config.json").read_text())["text"] == recorded
    Path("lines.txt").write_text("\n".join(map(" ".join, SENTENCES)), encoding="utf-8")
    query = "[김연아는] 서울에 산다."
    found = run("neighbors", query, "--corpus", "lines.txt", "-m", "ko", "-k", "1", "--layer", "0")
    assert found.out.splitlines()[0].strip() == "[김연아는] 서울에 산다 ."
    assert "[김연아는]" in found.out.splitlines()[1]


@pytest.mark.filterwarnings("always:the model was trained on text")
def test_another_language_is_used_with_a_warning(run, korean: Path) -> None:
    german = run("perplexity", "ko", "new.txt", "--json", "--language", "de")
    assert german.err.startswith(f"elmore: {WARNING}; with moses for de")
    assert tokens_of_perplexity(german) > NUM_TOKENS  # cut into syllables
    with pytest.warns(UserWarning, match=WARNING):
        assert elmore.load(korean, language="en").language == "en"
    assert WARNING in run("finetune", "ko", "ko.txt", "-o", "x", "--language", "en", *COMMON).err
    Path("tokenized.txt").write_text("\n".join(map(" ".join, SENTENCES)), encoding="utf-8")
    options = ("--tokenizer", "whitespace", "--sentences", "lines", "--json")
    tokenized = run("perplexity", "ko", "tokenized.txt", *options)
    assert WARNING not in tokenized.err
    assert tokens_of_perplexity(tokenized) == NUM_TOKENS


def test_model_without_a_recorded_language_is_english(run, korean: Path) -> None:
    config = json.loads((korean / "config.json").read_text())
    del config["text"], config["settings_hash"]
    (korean / "config.json").write_text(json.dumps(config))
    elmo = elmore.load(korean)
    assert (elmo.tokenizer, elmo.language) == ("moses", "en")
    assert elmore.load(korean, language="ko").language == "ko"


def test_language_codes_may_be_upper_case(run, korean: Path) -> None:
    assert elmore.load(korean, language="KO").language == "ko"  # no warning: the same language
    upper = ("pretrain", "ko.txt", "-o", "upper", "--size", "tiny", "--language", "KO", *COMMON)
    result = run(*upper, "--heldout", "new.txt")
    assert result.code == 0, result.err
    recorded = json.loads(Path("upper/config.json").read_text())["text"]
    assert recorded == {"tokenizer": "moses", "language": "ko"}


def test_unknown_languages_are_rejected(run, korean: Path) -> None:
    for command in (
        ("pretrain", "ko.txt", "-o", "x"), ("finetune", "ko", "ko.txt", "-o", "x"),
        ("perplexity", "ko", "ko.txt"), ("embed", "ko.txt", "-o", "x.npz", "-m", "ko"),
        ("neighbors", "[a]", "--corpus", "ko.txt", "-m", "ko"),
    ):  # fmt: skip
        assert_rejected(run(*command, "--language", "xx"), "unknown language 'xx'")
    config = json.loads((korean / "config.json").read_text())
    changes = {"text": {"language": "xx"}, "settings_hash": None}
    (korean / "config.json").write_text(json.dumps(config | changes))
    assert_rejected(run("perplexity", "ko", "ko.txt"), "unknown language 'xx'")
