"""A model directory for all libraries, and a stand-in for the Hugging Face Hub."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants, file_download

from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.directory import write_directory
from elmore.embedder import Embedder
from elmore.integrations import sklearn
from tests.integrations.hub import Hub, serve_hub


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny English model with int8 weights in two files."""
    torch.manual_seed(0)
    elmo = Embedder(BiLM(BiLMConfig.tiny()), device="cpu", tokenizer="moses", language="en")
    path = tmp_path_factory.mktemp("models") / "tiny"
    path.mkdir()
    write_directory(
        elmo.bilm, path, tokenization=elmo.tokenization, dtype="int8", max_file_bytes=20_000
    )
    assert len([*path.glob("*.safetensors")]) == 2
    (path / "README.md").write_text("# Tiny\n\nA model for tests.\n", encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def _empty_caches() -> None:
    """Rounding depends on the words that were encoded before."""
    sklearn._load.cache_clear()
    sklearn._find.cache_clear()


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty Hub, and an empty cache; nothing else on the network can be reached."""
    with serve_hub() as hub:
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        for module in (constants, file_download):  # the latter until version 1
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield hub


@pytest.fixture
def files(folder: Path) -> dict[str, bytes]:
    """The files of the model."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}
