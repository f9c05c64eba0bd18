"""`elmore serve` as a process. Oracles: signals and exit codes; `Embedder` outside the server."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import elmore
from elmore.analysis.senses import read_senses
from elmore.embedder import Embedder
from elmore.server.backend import Backend
from elmore.server.client import Client
from elmore.server.model import SAMPLE_CORPORA
from elmore.server.run import serve
from elmore.server.setup import Setup, default_models, parse_corpora, parse_names, read_token
from elmore.server.worker import Worker, WorkerDiedError
from tests.cli.conftest import assert_rejected, run  # noqa: F401

TOKEN = "t" * 32


@pytest.fixture
def server(folder: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    command = [
        sys.executable, "-m", "elmore", "serve", "--port", "0", "--token-file", tmp_path / "token",
        "--model", folder / "tiny", "--task", folder / "ner", "--corpus", folder / "corpus.txt",
        "--device", "cpu",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline().split()[0]
        finally:
            process.kill()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_killed_worker_is_replaced_and_shutdown_finishes_what_was_accepted(
    server: tuple[subprocess.Popen, str], elmo: Embedder
) -> None:
    process, address = server
    client = Client(address, token=TOKEN)
    texts = ["He sat by the bank.", "Banks fail."]
    vectors, expected = client.embed(texts), elmo.embed(texts)
    for ours, theirs in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert client.predict("ner", ["Ada"])[0]["tokens"] == ["Ada"]
    assert client.predict("ner", [" "]) == [{"error": "expected text, got an empty line"}]
    for method in (client.embed, partial(client.predict, "ner")):
        with pytest.raises(TypeError, match="expected a list, got str; put it in a list"):
            method("Ada")
    assert client.neighbors("a [play]", k=2)[0]["word"]
    assert client.similarity("a [play]", "a [play]") == pytest.approx([1, 1, 1])
    with pytest.raises(elmore.InputError, match="Authorization: Bearer TOKEN"):
        Client(address).models()

    os.kill(worker_of(process), signal.SIGKILL)
    started = time.monotonic()
    np.testing.assert_allclose(client.embed(texts)[0], vectors[0], rtol=1e-5, atol=1e-6)
    assert time.monotonic() - started < 30  # a deadline for busy machines; 2 s on an idle one

    worker = worker_of(process)
    os.kill(worker, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        accepted = threads.submit(client.embed, texts)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None
        os.kill(worker, signal.SIGCONT)
        np.testing.assert_allclose(accepted.result(30)[0], vectors[0], rtol=1e-5, atol=1e-6)
    assert process.wait(30) == 0
    assert not Path(f"/proc/{worker}").exists()


def workers_of(process: subprocess.Popen) -> list[int]:
    """Return the children, without multiprocessing's resource tracker."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")  # of each thread
    children = [pid for file in tasks for pid in file.read_text().split()]
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in children}
    return [pid for pid, command in commands.items() if "spawn_main" in command]


def worker_of(process: subprocess.Popen) -> int:
    [worker] = workers_of(process)
    return worker


def test_invalid_options_are_rejected_before_anything_is_loaded(run, tmp_path: Path) -> None:  # noqa: F811
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_rejected(run("serve", "--port", port), "Address already in use")
    assert_rejected(run("serve", "--port", "65536"), "port must be from 0 to 65535, got 65536")
    assert_rejected(run("serve", "--task", "a=x", "--task", "a=y"), "two are called a")
    assert_rejected(run("serve", "--max-tokens", "0"), "max_tokens must be positive")
    assert_rejected(run("serve", "--port", "99999"), "port must be from 0 to 65535, got 99999")
    assert_rejected(run("serve", "--threads", "0"), "threads must be at least 1, got 0")
    (tmp_path / "token").write_text("short")
    assert_rejected(run("serve", "--token-file", tmp_path / "token"), "16 ASCII characters")


def test_a_worker_reports_what_it_cannot_load(setup: Setup) -> None:
    with pytest.raises(elmore.InputError, match="corpus of ko: there is no such model"):
        Worker(replace(setup, corpora={"ko": "x"})).start()
    with pytest.raises(elmore.InputError, match=r"^none\.txt: No such file or directory"):
        Worker(replace(setup, corpora={"tiny": "none.txt"})).start()


def test_a_corpus_without_words_is_rejected_at_the_start(setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(elmore.InputError, match=r"empty\.txt has no words; expected one sentence"):
        Backend(replace(setup, corpora={"tiny": str(tmp_path / "empty.txt")}))


def test_a_corpus_that_cannot_be_searched_is_logged(
    setup: Setup, tmp_path: Path, caplog, monkeypatch
) -> None:
    monkeypatch.setattr("elmore.server.corpus.MAX_WORDS", 3)
    (tmp_path / "long.txt").write_text("one two three four\n")
    name = next(iter(setup.models))
    own = replace(setup, tasks={}, corpora={name: str(tmp_path / "long.txt")})
    model = Backend(own).models[name]
    with pytest.raises(elmore.InputError, match="words"):
        model.wait_for_corpus()
    assert "neighbors cannot be searched in" in caplog.text


def test_workers_are_stopped_if_one_cannot_be_started(setup: Setup, monkeypatch) -> None:
    stopped = []

    def start(worker: Worker) -> None:
        raise WorkerDiedError

    monkeypatch.setattr(Worker, "start", start)
    monkeypatch.setattr(Worker, "stop", lambda worker: stopped.append(worker))
    with pytest.raises(elmore.InputError, match="a worker ended while it loaded the models"):
        serve(setup, port=0, workers=2)
    assert len(stopped) == 2


@pytest.mark.parametrize("reason", [WorkerDiedError, KeyboardInterrupt])
def test_a_start_that_fails_does_not_wait_for_the_other_workers(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, reason: type[BaseException]
) -> None:
    killed, numbers = threading.Event(), iter(range(2))

    def start(worker: Worker) -> None:
        if next(numbers) == 0:
            raise reason
        assert killed.wait(60)

    monkeypatch.setattr(Worker, "start", start)
    monkeypatch.setattr(Worker, "kill", lambda _: killed.set())
    with pytest.raises((elmore.InputError, KeyboardInterrupt)):
        serve(setup, port=0, workers=2)
    assert killed.is_set()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_signal_ends_a_server_that_is_loading(folder: Path, tmp_path: Path) -> None:
    """The corpus is a pipe that nobody writes to, so loading never ends.

    Not SIGINT, which shells ignore in background jobs. Both signals have the same handler.
    """
    os.mkfifo(tmp_path / "corpus.txt")
    command = [sys.executable, "-m", "elmore", "serve", "--port", "0", "--device", "cpu"]
    command += ["-m", f"{folder}/tiny", "--corpus", f"{tmp_path}/corpus.txt"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "loading tiny\n"
            deadline = time.monotonic() + 60
            while not workers_of(process) and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, errors) == (130, "elmore: interrupted\n")


def test_signals_are_handled_when_the_address_is_announced(setup: Setup) -> None:
    serve(
        replace(setup, tasks={}), port=0, on_ready=lambda _: os.kill(os.getpid(), signal.SIGINT)
    )  # returns


def test_a_server_that_cannot_announce_its_address_ends(setup: Setup) -> None:
    def announce(_: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        serve(replace(setup, tasks={}), port=0, on_ready=announce)
    assert not multiprocessing.active_children()


def test_the_address_that_is_listened_on_is_an_accepted_host(setup: Setup, monkeypatch) -> None:
    apps: list[dict] = []
    monkeypatch.setattr(Worker, "start", lambda _: {"models": [], "tasks": []})
    monkeypatch.setattr("elmore.server.app.create_app", lambda *_, **options: apps.append(options))
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    serve(setup, host="127.0.0.2", port=0)
    assert "127.0.0.2" in apps[0]["hosts"]


def test_names_of_models_tasks_and_corpora() -> None:
    assert parse_names(["runs/ner", "runs/lr=1/srl", "x=runs/y=z", "en"]) == {
        "ner": "runs/ner",
        "srl": "runs/lr=1/srl",
        "x": "runs/y=z",
        "en": "en",
    }
    with pytest.raises(elmore.InputError, match="expected NAME=PATH or a path"):
        parse_names(["=x"])
    models = {"en": "en", "ko": "ko"}
    assert parse_corpora(["a.txt", "ko=b.txt"], models) == {"en": "a.txt", "ko": "b.txt"}
    with pytest.raises(elmore.InputError, match=r"a\.txt and b\.txt are both for en"):
        parse_corpora(["a.txt", "en=b.txt"], models)
    with pytest.raises(elmore.InputError, match="expected MODEL=FILE or a file"):
        parse_corpora(["en="], models)


def test_tokens_are_one_long_word(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert read_token(path) == TOKEN
    for wrong in ("", "x" * 15, "two words of a token", "\u00e9" * 20):
        path.write_text(wrong)
        with pytest.raises(elmore.InputError, match="16 ASCII characters"):
            read_token(path)


def test_the_sample_corpora_are_those_of_the_examples() -> None:
    examples = Path(__file__).parents[2] / "examples"
    assert SAMPLE_CORPORA["en"].read_bytes() == (examples / "corpus.txt").read_bytes()
    senses = read_senses(examples / "senses-ko.tsv", "whitespace")
    lines = SAMPLE_CORPORA["ko"].read_text(encoding="utf-8").splitlines()
    assert lines == [" ".join(example.occurrence.tokens) for example in senses]


def test_the_process_that_serves_http_does_not_import_torch() -> None:
    """Oracle: the modules of a new process. PyTorch takes 200 MB, which only workers need."""
    code = (
        "import sys; from elmore.server import run, setup; setup.choose_tasks((), "
        "setup.parse_names(setup.default_models())); print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr


def test_the_korean_model_is_a_default_if_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: a distribution with the entry point of the package `models/ko`."""
    with monkeypatch.context() as without_packages:
        without_packages.setattr("elmore.server.setup.entry_points", lambda **_: ())
        assert default_models() == ("en",)
    info, folder = tmp_path / "elmore_ko-1.dist-info", tmp_path / "elmore_ko"
    info.mkdir()
    folder.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elmore-ko\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[elmore.models]\nko = elmore_ko\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert parse_names(default_models()) == {"en": "en", "ko": str(folder)}
