"""Models by id. Oracles: a stand-in for the Hub that records requests; the model directory."""

from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants

import elmore
from elmore.checkpoint.hub import HubId, parse_id
from elmore.cli import app
from elmore.embedder import Embedder
from tests.integrations.hub import Files, Hub

SENTENCE = ["He", "sat", "by", "the", "bank"]


@pytest.fixture
def other(embedder: Embedder, tmp_path: Path) -> Files:
    """The files of a model with other weights."""
    embedder.save(tmp_path / "other")
    return {file.name: file.read_bytes() for file in (tmp_path / "other").iterdir()}


def test_model_is_downloaded_once_and_loaded_like_its_directory(
    hub: Hub, files: Files, folder: Path
) -> None:
    hub.commit("user/elmo", files, "main")
    expected, elmo = elmore.load(folder, device="cpu"), elmore.load("user/elmo", device="cpu")
    np.testing.assert_array_equal(elmo.embed([SENTENCE])[0], expected.embed([SENTENCE])[0])
    assert elmo.tokenizer == "moses"
    hub.requests.clear()
    elmore.load(Path("user/elmo"), device="cpu")  # the command line passes a path
    assert [request for request in hub.requests if "resolve" in request] == []


def test_commands_take_ids(hub: Hub, files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    hub.commit("user/elmo", files, "v1")
    app(["info", "user/elmo@v1"], result_action="return_value")
    assert "A model for tests." in capsys.readouterr().out


def test_revision_selects_a_commit_a_tag_or_a_branch(hub: Hub, files: Files, other: Files) -> None:
    first = hub.commit("user/elmo", files, "main", "v1")
    hub.commit("user/elmo", other, "main")
    v1, main = (elmore.load(f"user/elmo{at}", device="cpu").weights_hash for at in ("@v1", ""))
    assert v1 != main
    assert elmore.load(f"user/elmo@{first}", device="cpu").weights_hash == v1
    assert elmore.load("user/elmo", revision="v1", device="cpu").weights_hash == v1
    with pytest.raises(elmore.InputError, match="user/elmo has no revision v2"):
        elmore.load("user/elmo", revision="v2")
    with pytest.raises(elmore.InputError, match="revision is for models on the Hugging Face Hub"):
        elmore.load("en", revision="v1")


def test_loaded_model_stays_the_same_when_the_branch_moves(
    hub: Hub, files: Files, other: Files
) -> None:
    hub.commit("user/elmo", files, "main")
    elmo = elmore.load("user/elmo", device="cpu")
    before = elmo.weights_hash
    hub.commit("user/elmo", other, "main")
    elmo.refresh()
    assert elmo.weights_hash == before


def test_cached_model_is_loaded_without_a_connection(
    hub: Hub, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = hub.commit("user/elmo", files, "main")
    expected = elmore.load("user/elmo", device="cpu").weights_hash
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    for model in ("user/elmo", f"user/elmo@{sha}"):
        assert elmore.load(model, device="cpu").weights_hash == expected
    assert hub.requests == []
    with pytest.raises(elmore.InputError, match="user/new: no such model on this machine"):
        elmore.load("user/new")


def test_folder_takes_precedence_over_an_id(
    hub: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "elmo").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    elmore.load("user/elmo", device="cpu")
    assert hub.requests == []


def test_unknown_model_is_an_error_of_one_line(hub: Hub) -> None:
    with pytest.raises(elmore.InputError, match=r"user/elmo: no such model, neither on .*$"):
        elmore.load("user/elmo")


def test_weights_of_another_kind_of_model_are_not_downloaded(hub: Hub) -> None:
    hub.commit("user/bert", {"config.json": b"{}", "model.safetensors": b"large"}, "main")
    with pytest.raises(elmore.InputError, match="does not describe a biLM"):
        elmore.load("user/bert")
    assert not any("model.safetensors" in request for request in hub.requests)


def test_damaged_download_is_rejected(hub: Hub, files: Files, other: Files) -> None:
    hub.commit("user/elmo", other | {"config.json": files["config.json"]}, "main")
    with pytest.raises(elmore.InputError, match="is damaged"):
        elmore.load("user/elmo")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("user/elmo", HubId("user/elmo", None)),
        ("user/elmo.v1-x@refs/pr/1", HubId("user/elmo.v1-x", "refs/pr/1")),
        (Path("user/elmo"), HubId("user/elmo", None)),
        ("elmo", None),
        ("./elmo", None),
        ("../elmo", None),
        ("/runs/elmo", None),
        ("runs/elmo/best", None),
        ("user/elmo@", None),
        ("user/el mo", None),
    ],
)
def test_ids_differ_from_paths(model: Path | str, expected: HubId | None) -> None:
    assert parse_id(model) == expected


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmore.checkpoint.hub.find_spec", lambda _: None)
    with pytest.raises(elmore.InputError, match=r'pip install "elmore\[hf\]"$'):
        elmore.load("user/elmo")
    with pytest.raises(elmore.InputError, match="no such model; expected"):
        elmore.load("runs/weights.hdf5")  # cannot be an id
