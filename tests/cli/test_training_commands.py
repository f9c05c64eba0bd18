"""The commands pretrain, perplexity and finetune, end to end. Oracle: known token counts."""

import errno
import io
import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import elmore
from elmore.cli.pretrain import expand
from elmore.pretrain import loop
from tests.cli.conftest import assert_rejected
from tests.cpu import int8_problem

SETTINGS = [
    "training.streams=2", "training.window=4", "training.negatives=8", "run.heldout=0.2",
    "run.log_steps=5", "vocabulary.min_count=1",
]  # fmt: skip
FLAGS = [part for setting in SETTINGS for part in ("--set", setting)]
COMMON = ["--cache", "c", "--workers", "1", "--device", "cpu", *FLAGS]


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = "The cat sat by the bank. It slept.\nA dog came! The cat left.\n" * 5
    Path("a.txt").write_text(lines)
    Path("b.txt").write_text(lines)
    return tmp_path


def test_pretrain_perplexity_finetune_and_convert(run, text: Path) -> None:
    result = run("pretrain", "a.txt", "b.txt", "-o", "base", "--size", "tiny", *COMMON)
    assert result.code == 0, result.err
    assert "step 5 (100%)" in result.out
    last = result.out.splitlines()[-1]
    assert "held-out perplexity" in last
    assert "0.0% unknown words" in last  # all words of the text are in the vocabulary
    measured = json.loads(run("perplexity", "base", "a.txt", "--device", "cpu", "--json").out)
    assert measured["tokens"] == 5 * (8 + 4 + 5 + 5)  # words and sentence ends
    assert measured["average"] == pytest.approx((measured["forward"] + measured["backward"]) / 2)
    assert "perplexity" in run("perplexity", "base", "a.txt", "b.txt").out
    no_limit = ("--max-minutes", "inf")
    tuned = run("finetune", "base", "a.txt", "-o", "tuned", *COMMON, *no_limit, "--json")
    summary = json.loads(tuned.out)
    assert summary["heldout"]["average"] <= summary["before"]["average"]
    assert elmore.load("tuned").embed(["The cat."])[0].shape == (3, 3, 32)
    assert run("convert", "tuned", "-o", "half", "--dtype", "float16").code == 0
    assert json.loads(run("perplexity", "half", "a.txt", "--json").out)["average"] == pytest.approx(
        json.loads(run("perplexity", "tuned", "a.txt", "--json").out)["average"], rel=0.01
    )
    info = json.loads(run("info", "tuned", "--json").out)
    assert info["provenance"]["text"] == ["a.txt"]
    again = run(
        "pretrain", "*.txt", "-o", "again", "--recipe", "base/config.toml", *COMMON, "--json"
    )
    assert json.loads(again.out)["text"] == ["a.txt", "b.txt"]


def test_invalid_commands_are_rejected(run, text: Path) -> None:
    Path("empty.txt").touch()
    Path("binary.txt").write_bytes(b"\xff\xfe\n")
    Path("long.txt").write_bytes(b"word " * 1_000_000)
    Path("existing").mkdir()
    Path("existing/file").touch()
    tiny = ("--size", "tiny", *COMMON)
    assert_rejected(run("pretrain", "-o", "x", *tiny), "expected text files")
    assert_rejected(run("pretrain", "none.txt", "-o", "x", *tiny), "none.txt: no such file")
    assert_rejected(run("pretrain", "empty.txt", "-o", "x", *tiny), "no words in empty.txt")
    assert_rejected(run("pretrain", "binary.txt", "-o", "x", *tiny), "line 1: byte 0xff")
    assert_rejected(
        run("pretrain", "long.txt", "-o", "x", *tiny), "line 1: more than 1,000,000 bytes"
    )
    assert_rejected(run("pretrain", "a.txt", "-o", "existing", *tiny), "existing exists already")
    assert_rejected(
        run("pretrain", "a.txt", "-o", "x", "--heldout", "none.txt", *tiny), "none.txt: No such"
    )
    inside = ("--cache", "x/c", "--workers", "1", "--size", "tiny")
    assert_rejected(run("pretrain", "a.txt", "-o", "x", *inside), "the cache x/c is inside x")
    assert_rejected(
        run("pretrain", "a.txt", "-o", "x", *tiny, "--set", "training.lrr=1"), "did you mean"
    )
    assert_rejected(run("pretrain", "a.txt", "-o", "x", *tiny, "--resume"), "no run to resume")
    assert_rejected(run("pretrain", ".", "-o", "x", *tiny), "is a folder; name its files")
    assert_rejected(
        run("pretrain", "a.txt", "-o", "x", *tiny, "--max-minutes", "0"), "must be positive"
    )
    assert_rejected(
        run("pretrain", "a.txt", "-o", "x", "--cache", "c", "--workers", "-1"), "at least 1"
    )
    assert_rejected(
        run("finetune", "existing", "a.txt", "-o", "x", "--set", "bilm.dim=3"),
        "cannot change the sizes",
    )
    assert_rejected(run("perplexity", "existing", "a.txt"), "existing contains no model")
    assert_rejected(run("perplexity", "existing"), "expected text files")
    assert_rejected(run("finetune", "existing", "-o", "x"), "expected text files")
    assert_rejected(run("finetune", "existing", "a.txt", "-o", "x"), "existing contains no model")
    assert not Path("x").exists()


def test_pattern_for_all_subfolders(text: Path) -> None:
    Path("sub/deep").mkdir(parents=True)
    for path in ("sub/1.txt", "sub/deep/2.txt"):
        Path(path).touch()
    assert expand((Path("sub/**/*.txt"),)) == [Path("sub/1.txt"), Path("sub/deep/2.txt")]


def test_perplexity_reads_tokenized_text_as_the_run_did(run, text: Path) -> None:
    """Oracle: the number of tokens in the lines, each of which is a sentence."""
    lines = (f"The cat {n} came . It slept ." for n in range(40))
    Path("tokens.txt").write_text("\n".join(lines))
    settings = ("--set", "text.tokenizer=whitespace", "--set", "text.sentences=lines")
    result = run("pretrain", "tokens.txt", "-o", "m", "--size", "tiny", *COMMON, *settings)
    assert result.code == 0, result.err
    tokenizer = ("--tokenizer", "whitespace", "--device", "cpu", "--json")
    measured = json.loads(run("perplexity", "m", "tokens.txt", *tokenizer).out)
    assert measured["tokens"] == 40 * (8 + 1)
    split = json.loads(run("perplexity", "m", "tokens.txt", *tokenizer, "--sentences", "split").out)
    assert split["tokens"] > measured["tokens"]


def test_invalid_utf8_is_replaced_only_with_the_option(run, text: Path) -> None:
    Path("bad.txt").write_bytes(Path("a.txt").read_bytes() + b"The \xff cat.\n")
    command = ("pretrain", "bad.txt", "-o", "x", "--size", "tiny", *COMMON)
    assert_rejected(run(*command), "replace_invalid")
    assert run(*command, "--replace-invalid").code == 0


def test_text_that_is_too_short_to_hold_out_a_sentence_is_reported(run, text: Path) -> None:
    command = ("pretrain", "a.txt", "--size", "tiny", *COMMON, "--set", "training.epochs=0.1")
    result = run(*command, "-o", "short", "--set", "run.heldout=0.001")
    assert result.code == 0
    assert "the text has 20 sentences, of which run.heldout=0.001 is less than one" in result.out
    assert "held out" not in run(*command, "-o", "none", "--set", "run.heldout=0").out


@pytest.mark.parametrize(
    ("interrupted", "message", "more"),
    [
        ("encode_corpus", "nothing was saved; run the same command again", ()),
        ("train", "before the first checkpoint; resume the run", ("--resume",)),
    ],
)
def test_interruption_before_the_first_step_says_how_to_continue(
    run, text: Path, monkeypatch, interrupted: str, message: str, more: tuple[str, ...]
) -> None:
    command = ("pretrain", "a.txt", "-o", "base", "--size", "tiny", *COMMON)
    with monkeypatch.context() as patch:
        interrupt = lambda *_, **__: signal.raise_signal(signal.SIGTERM)  # noqa: E731
        patch.setattr(f"elmore.pretrain.run.{interrupted}", interrupt)
        result = run(*command)
    assert result.code == 130
    assert message in result.err
    assert run(*command, *more).code == 0


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        RuntimeError("CUDA out of memory. Tried to allocate 9 GiB."),
    ],
)
def test_lack_of_memory_is_one_message(run, text: Path, monkeypatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(loop, "BiLM", fail)
    command = ("pretrain", "a.txt", "-o", "base", "--size", "tiny", *COMMON)
    assert_rejected(
        run(*command), f"not enough memory; try a smaller model or smaller batches ({error}"
    )


def test_closed_output_does_not_end_the_training(run, text: Path, monkeypatch) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.EIO, "Input/output error")  # as on a terminal after SIGHUP

    monkeypatch.setattr(sys, "stdout", Closed())
    run("pretrain", "a.txt", "-o", "base", "--size", "tiny", *COMMON)
    assert elmore.load("base", device="cpu").num_layers == 3


def test_int8_model_with_split_softmax_works_like_the_original(run, text: Path) -> None:
    """Oracle: the model before its conversion."""
    run("pretrain", "a.txt", "-o", "base", "--size", "tiny", *COMMON)
    options = ("--dtype", "int8", "--softmax-dtype", "int8", "--max-file-mb", "0.0002")
    assert run("convert", "base", "-o", "int8", *options).code == 0
    assert len(list(Path("int8").glob("softmax-*"))) > 1
    assert run("info", "int8").code == 0
    expected, result = (
        json.loads(run("perplexity", name, "a.txt", "--json").out) for name in ("base", "int8")
    )
    assert result["average"] == pytest.approx(expected["average"], rel=0.01)
    assert run("finetune", "int8", "a.txt", "-o", "tuned", *COMMON).code == 0
    assert run("perplexity", "tuned", "a.txt").code == 0
    elmo = elmore.load("int8", device="cpu")
    elmo.save("saved", dtype="int8")
    assert elmore.load("saved", device="cpu").weights_hash == elmo.weights_hash
    vectors = elmo.embed(["He sat."])[0]
    for precision in ("bf16", "int8") if int8_problem() is None else ("bf16",):
        fast = elmore.load("int8", device="cpu", precision=precision)
        np.testing.assert_allclose(fast.embed(["He sat."])[0], vectors, atol=0.05)
