"""Packages of trained tasks. Oracles: the tasks before they were packaged; numpy; file sizes."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import elmore
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.locate import installed_tasks
from elmore.embedder import Embedder
from elmore.server.setup import choose_tasks
from elmore.tasks import package, read_task_config, train_task
from elmore.tasks.package import package_tasks
from tests.cli.conftest import assert_rejected
from tests.packages import install
from tests.tasks.conftest import SENTENCES

TEXT = "Ada Lovelace lived in London."
KNOWN = ["the", "lived", "in", "a", "of", "left", "for", "early"]
"""Words with pretrained vectors, the most frequent one first."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NER with ELMo and without, on frozen word vectors, and without ELMo on fine-tuned ones."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("runs")
    Embedder(BiLM(BiLMConfig.tiny()), device="cpu").save(folder / "tiny")
    data = folder / "entities.conll"
    data.write_text(SENTENCES)
    vectors = torch.randn(len(KNOWN), 12).tolist()
    rows = (f"{word} {' '.join(map(str, v))}" for word, v in zip(KNOWN, vectors, strict=True))
    (folder / "glove.txt").write_text("\n".join(rows) + "\n")
    small = ["words.min_count=1", "words.char_filters=4", "tagger.hidden=8", "training.epochs=12"]
    small += ["training.lr=0.03", "words.train=false", f"words.vectors={folder / 'glove.txt'}"]
    runs = {
        "ner": f"elmo.model={folder / 'tiny'}",
        "plain": "elmo.place=none",
        "fine-tuned": "words.train=true",
    }
    for name, change in runs.items():
        baseline = [] if name == "ner" else ["elmo.place=none"]
        config = read_task_config("ner", changes=[*small, *baseline, change])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("elmore.tasks.train.plot_task", lambda *_: None)
            options = {"device": "cpu", "progress": False}
            train_task("ner", folder / name, train=data, dev=data, config=config, **options)
    (folder / "LICENSE").write_text("Training data: CC BY 4.0\n")
    return folder


def facts_of(task: str) -> dict[str, Any]:
    return json.loads(Path(task, "task.json").read_text())


@pytest.fixture
def tiny_is_installed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The biLM is an installed model called tiny-test; returns the folder of packages."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "elmore_tiny").symlink_to(folder / "tiny")
    metadata = site / "elmore_tiny-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: elmore-tiny\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[elmore.models]\ntiny-test = elmore_tiny\n")
    monkeypatch.syspath_prepend(site)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return site


@pytest.mark.usefixtures("tiny_is_installed")
def test_packaged_tasks_are_installed_and_predict_as_before(
    folder: Path, tiny_is_installed: Path, run
) -> None:
    data = folder / "entities.conll"
    arguments = [folder / "ner", f"ner-baseline={folder / 'plain'}", "-o", "tasks", "--json"]
    arguments += ["--license-file", folder / "LICENSE", "--evaluate", f"ner={data}"]
    result = run("export", "tasks", *arguments, "--device", "cpu", "--dtype", "float16")
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    for task in facts["tasks"]:
        assert task["score"] == pytest.approx(task["score_before"], abs=0.02)
        files = list(Path("tasks", task["name"]).iterdir())
        assert task["bytes"] == sum(path.stat().st_size for path in files)
        assert {path.name for path in files} == {
            "task.json", "config.toml", "words.json", "model.safetensors",
        }  # fmt: skip
        for path in files:  # no file of this machine is named
            assert str(folder).encode() not in path.read_bytes()
    install(Path("tasks"), tiny_is_installed)
    assert list(tiny_is_installed.glob("*.dist-info/licenses/LICENSE"))
    names = ["tiny-test/ner", "tiny-test/ner-baseline"]
    assert [task.name for task in installed_tasks()] == names

    before = elmore.tasks.load(folder / "ner", device="cpu")(TEXT)
    after = elmore.tasks.load("tiny-test/ner", device="cpu")(TEXT)
    assert after["tags"] == before["tags"]
    predicted = run("predict", "tiny-test/ner", TEXT, "--device", "cpu")
    assert json.loads(predicted.out) == after
    result = run("predict", "tiny-test/ner-baseline", TEXT, "-m", folder / "tiny")
    assert_rejected(result, "is a baseline, so it cannot use the biLM")
    described = run("info", "tiny-test/ner", "--json")
    assert json.loads(described.out)["hash"] == facts_of("tasks/ner")["hash"]
    assert "tiny-test/ner-baseline | ner" in run("info", "tiny-test/ner").out.replace("`", "")
    assert run("evaluate", "tiny-test/ner-baseline", data, "--device", "cpu").code == 0
    message = "tiny-test/srl: no such task; expected a folder written by `elmore train`, or the "
    message += f"name of an installed task ({', '.join(names)})"
    assert_rejected(run("predict", "tiny-test/srl", TEXT), message)

    assert choose_tasks([], {"x": "tiny-test"}) == dict(zip(names, names, strict=True))
    assert choose_tasks([], {"en": "en"}) == {}
    assert choose_tasks(["none"], {"x": "tiny-test"}) == {}
    assert choose_tasks(["tiny-test/ner", "runs/srl"], {}) == {
        "tiny-test/ner": "tiny-test/ner",
        "srl": "runs/srl",
    }
    other = tiny_is_installed / "other-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (other / "entry_points.txt").write_text("[elmore.tasks]\ntiny-test = elmore_tiny_test_tasks\n")
    with pytest.raises(elmore.InputError, match="several packages provide a task tiny-test/ner: "):
        elmore.tasks.load("tiny-test/ner")


@pytest.mark.usefixtures("tiny_is_installed")
def test_needed_and_frequent_words_keep_their_int8_vectors(folder: Path) -> None:
    used = set(re.findall(r"^\S+", SENTENCES.lower(), re.MULTILINE)) & set(KNOWN)
    frequent = next(word for word in KNOWN if word not in used)
    options = {"data": {"ner": [folder / "entities.conll"]}, "max_words": len(used) + 1}
    license_file = folder / "LICENSE"
    [task] = package_tasks({"ner": folder / "ner"}, "tasks", license_file=license_file, **options)
    words = json.loads(Path("tasks/words.json").read_text())["words"]
    assert words == [w for w in KNOWN if w in used or w == frequent]
    assert (task.words_before - task.words, task.score) == (len(KNOWN) - len(words), None)
    before = load_file(folder / "ner" / "model.safetensors")
    after = load_file("tasks/vectors.safetensors")
    vectors = after["vectors"]
    assert vectors.dtype == torch.int8
    scales = after["vectors_scale"].numpy()[:, None]
    expected = before["words.table.known"].numpy()[[KNOWN.index(w) for w in words]]
    assert np.abs(vectors.numpy() * scales - expected).max() <= scales.max() / 2 * 1.001
    assert elmore.tasks.load("tasks/ner", device="cpu")(TEXT)["tokens"][0] == "Ada"


@pytest.mark.usefixtures("tiny_is_installed")
def test_tasks_share_the_vectors_of_one_file(folder: Path, tmp_path: Path) -> None:
    """Oracle: the vectors before packaging."""
    other = shutil.copytree(folder / "plain", tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    weights["words.table.known"] *= 2
    save_file(weights, other / "model.safetensors")
    facts = json.loads((other / "task.json").read_text())
    (other / "task.json").write_text(json.dumps({**facts, "hash": None}))

    runs = {"ner": folder / "ner", "fine-tuned": folder / "fine-tuned", "other": other}
    package_tasks(runs, "tasks", license_file=folder / "LICENSE", dtype="float32")
    assert json.loads(Path("tasks/words.json").read_text()) == {"words": KNOWN}
    for name, run in runs.items():
        shares = name != "other"
        words = json.loads(Path("tasks", name, "words.json").read_text())
        assert ("known" in words) != shares
        assert ("words.table.known" in load_file(f"tasks/{name}/model.safetensors")) != shares
        before, after = (elmore.tasks.load(path, device="cpu") for path in (run, f"tasks/{name}"))
        assert after.encode.index.known == before.encode.index.known
        torch.testing.assert_close(after.model.words.table.known, before.model.words.table.known)
    assert set(before.encode.index.known) == set(KNOWN)
    fine_tuned = elmore.tasks.load("tasks/fine-tuned", device="cpu").encode.index
    assert set(fine_tuned.known) == set(KNOWN) - set(fine_tuned.new) != set(KNOWN)


@pytest.mark.usefixtures("tiny_is_installed")
def test_damaged_shared_vectors_are_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package_tasks({"ner": folder / "ner"}, "tasks", license_file=folder / "LICENSE")
    with monkeypatch.context() as inside:
        inside.chdir("tasks/ner")
        elmore.tasks.load(".", device="cpu")
    words, vectors = Path("tasks/words.json"), Path("tasks/vectors.safetensors")

    def assert_load_fails(message: str) -> None:
        with pytest.raises(elmore.InputError, match=message):
            elmore.tasks.load("tasks/ner", device="cpu")

    intact = {path: path.read_bytes() for path in (words, vectors)}
    words.write_text(json.dumps({"words": KNOWN[::-1]}))
    assert_load_fails(r"or word vectors differ from those that elmore wrote")
    words.write_text(json.dumps({"words": KNOWN[1:]}))
    assert_load_fails(r"words\.json has 7 words, and vectors\.safetensors has .* \(8, 12\)")
    words.write_text("{}")
    assert_load_fails(r"tasks/words\.json: the setting 'words' is missing")
    words.write_bytes(intact[words])
    for broken in ({"vectors": torch.zeros(8)}, {"vectors": torch.tensor(0.0)}, {}):
        save_file(broken, vectors)
        assert_load_fails(r"expected one vector per word\. Install the package again")
    vectors.write_bytes(intact[vectors][:-1])
    assert_load_fails(r"tasks/vectors\.safetensors")
    vectors.unlink()
    assert_load_fails(r"vectors\.safetensors: no such file\. The tasks of a package share")


@pytest.mark.usefixtures("tiny_is_installed")
def test_what_cannot_be_published_is_rejected_and_nothing_is_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"license_file": folder / "LICENSE"}
    ner = {"ner": folder / "ner"}
    with pytest.raises(elmore.InputError, match="got 0 biLMs; baselines alone have none"):
        package_tasks({"plain": folder / "plain"}, "tasks", **options)
    with pytest.raises(elmore.InputError, match="there is no task srl; expected ner"):
        package_tasks(ner, "tasks", data={"srl": []}, **options)
    with pytest.raises(FileNotFoundError):
        package_tasks(ner, "tasks", license_file=folder / "missing")
    monkeypatch.setattr(package, "MAX_PACKAGE", 1000)
    with pytest.raises(elmore.InputError, match=r"the package has 0\.0 MB; expected up to 0 MB"):
        package_tasks(ner, "tasks", **options)
    monkeypatch.setattr(package, "MAX_FILE", 1000)
    with pytest.raises(elmore.InputError, match=r"^ner/model\.safetensors has 0\.0 MB"):
        package_tasks(ner, "tasks", **options)
    monkeypatch.setattr(package, "model_packages", list)
    with pytest.raises(
        elmore.InputError, match=r"not an installed model .*; publish the biLM first"
    ):
        package_tasks(ner, "tasks", **options)
    assert not Path("tasks").exists()
    Path("tasks").mkdir()
    Path("tasks/note").touch()
    with pytest.raises(elmore.InputError, match="tasks exists already"):
        package_tasks(ner, "tasks", **options)
