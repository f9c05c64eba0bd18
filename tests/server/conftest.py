"""An app with a tiny biLM and a tiny task; the models run in the test process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.embedder import Embedder
from elmore.server.app import create_app
from elmore.server.backend import Backend
from elmore.server.batching import Queue
from elmore.server.messages import Answer, Batch
from elmore.server.setup import Limits, Setup
from elmore.server.worker import answer
from elmore.tasks import read_task_config, train_task
from tests.tasks.conftest import SENTENCES

LIMITS = Limits(
    max_body=20_000, max_sentences=8, max_characters=2000, max_tokens=200, max_sentence_tokens=100
)
HOSTILE = [
    "", " ", "\t\n", "\x00", "\ufffd", "\u202e", "\ufeff", "\u0301" * 50, "e\u0301" * 60,
    "a" * 1900, "!" * 90, "[bank]", "[[bank]]", "]bank[", "<S> </S>", "<script>alert(1)</script>",
    "{}", "%s %n", "../../etc/passwd", "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 9,
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "DOTMULTI",
    "&apos;&amp;", "1e999", "NaN", "\u2028x\u2029",
]  # fmt: skip


class InProcess:
    """A worker without a process. Batches are recorded."""

    def __init__(self, setup: Setup) -> None:
        self.backend = Backend(setup)
        self.batches: list[Batch] = []
        for model in self.backend.models.values():
            model.wait_for_corpus()

    def start(self) -> dict:
        return self.backend.describe()

    def run(self, batch: Batch, seconds: float) -> list[Answer]:
        self.batches.append(batch)
        return answer(self.backend, batch)

    def stop(self) -> None:
        pass


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a tiny biLM, NER with and without ELMo, and a corpus."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("server")
    Embedder(BiLM(BiLMConfig.tiny()), device="cpu").save(folder / "tiny")
    (folder / "corpus.txt").write_text(
        "The bank paid .\nHe sat by the bank .\nThey saw a play .\nA play is long .\n"
    )
    (folder / "entities.conll").write_text(SENTENCES)
    small = ["words.dim=8", "words.min_count=1", "words.char_filters=0", "tagger.hidden=8"]
    for name, elmo in (("ner", f"elmo.model={folder / 'tiny'}"), ("plain", "elmo.place=none")):
        config = read_task_config("ner", changes=[*small, "training.epochs=1", elmo])
        data = {"train": [folder / "entities.conll"], "dev": folder / "entities.conll"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("elmore.tasks.train.plot_task", lambda *_: None)
            train_task("ner", folder / name, **data, config=config, device="cpu", progress=False)
    return folder


@pytest.fixture(scope="session")
def setup(folder: Path) -> Setup:
    return Setup(
        models={"tiny": str(folder / "tiny")},
        tasks={"ner": str(folder / "ner"), "plain": str(folder / "plain")},
        corpora={"tiny": str(folder / "corpus.txt")},
        limits=LIMITS,
        device="cpu",
    )


@pytest.fixture(scope="session")
def worker(setup: Setup) -> InProcess:
    return InProcess(setup)


@pytest.fixture(scope="session")
def elmo(folder: Path) -> Embedder:
    """The same model outside the server."""
    from elmore.embedder import load

    return load(folder / "tiny", device="cpu")


@pytest.fixture(scope="session")
def new_client(worker: InProcess) -> Iterator[Callable[..., TestClient]]:
    """A function that starts an app and returns a client of it."""
    clients = []

    def start(limits: Limits = LIMITS, workers: tuple = (), **options: object) -> TestClient:
        app = create_app(
            lambda metrics: Queue(workers or [worker], limits, metrics),
            worker.start(),
            limits,
            **options,
        )
        clients.append(TestClient(app))
        return clients[-1].__enter__()

    yield start
    for client in clients:
        client.__exit__()


@pytest.fixture(scope="session")
def client(new_client: Callable[..., TestClient]) -> TestClient:
    """A client of an app that tests share: creating one takes longer than most requests."""
    return new_client()
