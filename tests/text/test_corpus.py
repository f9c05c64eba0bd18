"""Encoded corpora. Oracle: the text tokenized and counted in plain Python."""

import lzma
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

import elmore
from elmore.errors import InputError
from elmore.text import corpus as corpus_module
from elmore.text.characters import encode_words
from elmore.text.corpus import Corpus, TextConfig, encode_corpus
from elmore.text.split import split_sentences
from elmore.text.tokenize import Tokenization
from tests.processes import SERVER

TEXT = [
    "Mr. Smith sat by the bank. The bank raised its rates!",
    "",
    "A third line, with 3.5 numbers and the bank\u2028.",
    'He said "no." Then he left.',
] * 30


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt.xz"
    path.write_bytes(lzma.compress("\n".join(TEXT).encode()))
    return path


def expected_sentences() -> list[list[str]]:
    sentences = [elmore.tokenize(s) for line in TEXT for s in split_sentences(line)]
    return [words for words in sentences if words]


def decoded_sentences(corpus: Corpus) -> list[list[str]]:
    words = corpus.words()
    return [
        [words[i] for i in corpus.tokens[a:b]]
        for a, b in zip(corpus.starts[:-1], corpus.starts[1:], strict=True)
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_corpus_contains_the_text(
    text: Path, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module, "_LINES_PER_CHUNK", 7)
    monkeypatch.setattr(corpus_module, "_TOKENS_PER_CHUNK", 11)
    monkeypatch.setattr(corpus_module, "get_context", lambda _: SERVER)  # starts them faster
    corpus = encode_corpus([text], tmp_path / "cache", workers=workers)
    expected = expected_sentences()
    assert decoded_sentences(corpus) == [["<S>", *words, "</S>"] for words in expected]
    counts = Counter(word for words in expected for word in words)
    assert dict(zip(corpus.words()[3:], corpus.counts[3:], strict=True)) == counts
    assert corpus.words()[:3] == ["<S>", "</S>", "<UNK>"]
    assert (np.diff(corpus.counts[3:]) <= 0).all()
    assert corpus.num_sentences == len(expected)
    assert corpus.num_words == sum(counts.values())


def test_same_text_is_encoded_once(text: Path, tmp_path: Path) -> None:
    encoded = []

    def count_chunks(chunks, _):
        for chunk in chunks:
            encoded.append(chunk)
            yield chunk

    cache = tmp_path / "cache"
    first = encode_corpus([text], cache, workers=1, progress=count_chunks)
    assert encoded
    count = len(encoded)
    moved = text.rename(tmp_path / "renamed.xz")
    cached = encode_corpus([moved], cache, workers=1, progress=count_chunks)
    assert cached.folder == first.folder
    assert len(encoded) == count
    other = encode_corpus([moved], cache, TextConfig(sentences="lines"), workers=1)
    assert other.folder != first.folder
    both = encode_corpus([moved, moved], cache, workers=1)
    assert both.num_sentences == 2 * first.num_sentences


@pytest.mark.parametrize(("tokenizer", "package"), [("moses", "sacremoses"), ("spacy", "spacy")])
def test_text_is_encoded_again_after_an_upgrade_of_the_tokenizer(
    tmp_path: Path, tokenizer, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the definition; other versions may split text differently."""
    pytest.importorskip(package)
    (tmp_path / "t.txt").write_text("No, he left.\n")
    config = TextConfig(tokenizer=tokenizer, sentences="lines")

    def encode() -> Path:
        return encode_corpus([tmp_path / "t.txt"], tmp_path / "c", config, workers=1).folder

    before = encode()
    assert encode() == before
    versions = {package: "99"}
    monkeypatch.setattr(corpus_module, "version", lambda name: versions.get(name) or version(name))
    assert encode() != before


def test_second_process_waits_and_uses_the_result_of_the_first(text: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = encode_corpus([text], cache, workers=1).folder
    other_result = folder.rename(tmp_path / "other")
    with ThreadPoolExecutor(1) as thread:
        with FileLock(cache / f"{folder.name}.lock"):  # as if another process were encoding
            second = thread.submit(encode_corpus, [text], cache, workers=1)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.5)
            inode = other_result.rename(folder).stat().st_ino  # the other process is done
        assert second.result().folder.stat().st_ino == inode


def test_leftovers_of_a_killed_run_are_removed(text: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    name = encode_corpus([text], cache, workers=1).folder.name
    (cache / name).replace(cache / f".{name}.0123abcd.tmp")
    encode_corpus([text], cache, workers=1)
    assert {path.name for path in cache.iterdir()} == {name, f"{name}.lock"}


def test_pretokenized_lines_are_not_split(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("He doesn't . Mr.\n\n  \nB\n")
    config = TextConfig(tokenizer="whitespace", sentences="lines")
    corpus = encode_corpus([tmp_path / "t.txt"], tmp_path / "c", config, workers=1)
    assert decoded_sentences(corpus) == [
        ["<S>", "He", "doesn't", ".", "Mr.", "</S>"], ["<S>", "B", "</S>"],
    ]  # fmt: skip


def test_vocabulary_contains_the_most_frequent_words(text: Path, tmp_path: Path) -> None:
    corpus = encode_corpus([text], tmp_path / "c", workers=1)
    assert list(corpus.vocabulary(max_size=5, min_count=1)) == corpus.words()[:5]
    frequent = corpus.vocabulary(max_size=1000, min_count=60)
    counts = Counter(word for words in expected_sentences() for word in words)
    assert set(frequent.words[3:]) == {word for word, count in counts.items() if count >= 60}


@pytest.mark.parametrize("width", [12, 50])
def test_character_ids_equal_encode_words(text: Path, tmp_path: Path, width: int) -> None:
    corpus = encode_corpus([text], tmp_path / "c", workers=1)
    expected = encode_words(corpus.words(), width).numpy()
    np.testing.assert_array_equal(corpus.characters(width), expected)


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_text_without_words_is_rejected_and_leaves_no_files(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.txt").write_text(content)
    with pytest.raises(InputError, match=r"no words in .*t.txt"):
        encode_corpus([tmp_path / "t.txt"], tmp_path / "c", workers=1)
    assert {path.suffix for path in (tmp_path / "c").iterdir()} == {".lock"}


def test_language_without_a_tokenizer_is_checked_once_the_model_is_known() -> None:
    """Moses cannot split Chinese, but the model may have been trained on split text."""
    config = TextConfig(language="zh")
    assert config.for_model(Tokenization("whitespace", "zh")).tokenizer == "whitespace"
    with pytest.raises(InputError, match="Moses splits text at spaces"):
        config.for_model(None)
    for unknown in ({"language": "xx"}, {"tokenizer": "mosses"}):
        with pytest.raises(InputError, match="unknown"):
            TextConfig(**unknown)


def test_full_disk_is_reported_with_the_folder(text: Path, tmp_path: Path) -> None:
    """A limit on the file size makes writes fail like a full disk."""
    resource = pytest.importorskip("resource")
    script = "import sys; from pathlib import Path; from elmore.text.corpus import encode_corpus\n"
    script += "encode_corpus([Path(sys.argv[1])], Path(sys.argv[2]), workers=1)"

    def set_limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    done = subprocess.run(
        [sys.executable, "-c", script, str(text), str(tmp_path / "cache")],
        preexec_fn=set_limit, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert re.search(rf"OSError: \[Errno 27\].*{tmp_path / 'cache'}/[0-9a-f]+", done.stderr)


@pytest.mark.parametrize("name", ["tokens.u32", "starts.i64", "counts.i64"])
def test_damaged_corpus_is_rejected(text: Path, tmp_path: Path, name: str) -> None:
    folder = encode_corpus([text], tmp_path / "c", workers=1).folder
    (folder / name).write_bytes((folder / name).read_bytes()[:-8])
    with pytest.raises(InputError, match=r"is damaged. Delete it"):
        encode_corpus([text], tmp_path / "c", workers=1)
    (folder / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"is damaged|is not an encoded corpus"):
        encode_corpus([text], tmp_path / "c", workers=1)


@pytest.mark.parametrize("name", ["tokens.u32", "starts.i64", "counts.i64", "words.txt"])
def test_single_flipped_bit_is_detected(text: Path, tmp_path: Path, name: str) -> None:
    path = encode_corpus([text], tmp_path / "c", workers=1).folder / name
    flip_bit(path)
    with pytest.raises(InputError, match=r"is damaged. Delete it"):
        encode_corpus([text], tmp_path / "c", workers=1)


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_folder_without_corpus_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not an encoded corpus"):
        Corpus(tmp_path)


# Tokenizes without end in two workers, which inherit standard output and standard error.
ENCODE = """
import signal
import sys
from pathlib import Path
from elmore.text import corpus

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it

def chunks(*_):
    yield Path(), ["some text"]
    print("starting", flush=True)
    while True:
        yield Path(), ["some text"]

if __name__ == "__main__":
    corpus._read_chunks = chunks
    try:
        for number, _ in enumerate(corpus._encode_files([], corpus.TextConfig(), workers=2)):
            if number == 20:
                print("running", flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "encode.py"
    script.write_text(ENCODE)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"starting\n"
        assert process.stdout.readline() == b"running\n"
        process.kill()
        # The end of the file: no process has standard output open any more.
        assert process.communicate(timeout=30)[0] == b""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize("moment", [b"starting\n", b"running\n"])
def test_workers_print_no_traceback_on_ctrl_c(tmp_path: Path, moment: bytes) -> None:
    """A terminal sends SIGINT to the whole process group."""
    script = tmp_path / "encode.py"
    script.write_text(ENCODE)
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        while process.stdout.readline() != moment:
            pass
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 130


@pytest.mark.parametrize("workers", [1, 2])
def test_file_listed_several_times_counts_that_often(
    text: Path, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the same text in copies of the file, which are encoded one by one."""
    monkeypatch.setattr(corpus_module, "_LINES_PER_CHUNK", 7)
    monkeypatch.setattr(corpus_module, "_TOKENS_PER_CHUNK", 11)
    monkeypatch.setattr(corpus_module, "get_context", lambda _: SERVER)
    other, empty = tmp_path / "other.txt", tmp_path / "empty.txt"
    other.write_text("The river bank.\nA play.\n", encoding="utf-8")
    empty.write_text("\n", encoding="utf-8")
    copies = [tmp_path / f"copy-{i}.txt" for i in range(3)]
    for copy in copies:
        copy.write_bytes(other.read_bytes())

    repeated = encode_corpus(
        [other, text, empty, other, text, other, empty], tmp_path / "a", workers=workers
    )

    expected = encode_corpus([*copies, text, text], tmp_path / "b", workers=workers)
    assert sorted(decoded_sentences(repeated)) == sorted(decoded_sentences(expected))
    assert sorted(decoded_sentences(repeated)) == sorted(
        ["<S>", *words, "</S>"]
        for words in 2 * expected_sentences()
        + 3 * [["The", "river", "bank", "."], ["A", "play", "."]]
    )
    counts = dict(zip(repeated.words(), repeated.counts.tolist(), strict=True))
    assert counts == dict(zip(expected.words(), expected.counts.tolist(), strict=True))


def test_pipe_is_rejected_because_files_are_read_twice(text: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: expected a regular file"):
        encode_corpus([text, tmp_path / "pipe"], tmp_path / "cache", workers=1)


def test_file_that_changes_while_it_is_encoded_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The old text.\n")
    encode = corpus_module._encode_files

    def encode_changed(*arguments):
        text.write_text("A new one.\n")
        return encode(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(corpus_module, "_encode_files", encode_changed)
        with pytest.raises(InputError, match="changed while it was being encoded"):
            encode_corpus([text], tmp_path / "cache", workers=1)
    text.write_text("The old text.\n")
    corpus = encode_corpus([text], tmp_path / "cache", workers=1)
    assert decoded_sentences(corpus) == [["<S>", "The", "old", "text", ".", "</S>"]]


def test_file_listed_twice_differs_from_a_copy(tmp_path: Path) -> None:
    """The order of the sentences, and so which are held out, is that of the arguments."""
    for name, line in (("a", "first"), ("b", "first"), ("z", "last")):
        (tmp_path / name).write_text(f"{line}\n")
    a, b, z = (tmp_path / name for name in "abz")
    order = {
        files: [s[1] for s in decoded_sentences(encode_corpus(files, tmp_path / "c", workers=1))]
        for files in ((a, b, z), (a, a, z))
    }
    fresh = {
        files: [
            s[1] for s in decoded_sentences(encode_corpus(files, tmp_path / f"c{i}", workers=1))
        ]
        for i, files in enumerate(order)
    }
    assert order == fresh
