"""Model packages. Oracles: the model before it was packaged; what is on `sys.path`."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import elmore
from elmore.bilm.config import BiLMConfig
from elmore.bilm.model import BiLM
from elmore.checkpoint.directory import write_directory
from elmore.checkpoint.hub import HubId
from elmore.checkpoint.packages import INCLUDED, find_package, model_packages
from elmore.checkpoint.pretrained import find_model, model_name
from elmore.text.tokenize import Tokenization
from tests.packages import install

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "publish-a-model.md"
SENTENCE = ["the", "bank", "of", "the", "river"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder on `sys.path`; the current folder is another one."""
    (tmp_path / "site").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "site"


@pytest.fixture
def installed(bilm: BiLM, site: Path) -> Path:
    """The package of the documentation with a tiny model, called tiny-test; returns its folder."""
    source = site.with_name("source")
    write_directory(bilm, source, tokenization=Tokenization("moses", "ko"))
    [example] = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    example = example.replace("elmore_mine", "elmore_tiny_test").replace("mine", "tiny-test")
    (source / "pyproject.toml").write_text(example)
    (source / "README.md").write_text("# A tiny model\n")
    (source / "LICENSE").write_text("Apache License 2.0\n")
    install(source, site)
    return site / "elmore_tiny_test"


def declare(
    site: Path, package: str, name: str, value: str, *, group: str = "elmore.models"
) -> Path:
    """Write the metadata of a package with an entry point; return their folder."""
    folder = site / f"{package.replace('-', '_')}-2.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.0\n")
    (folder / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
    return folder


def test_installed_package_is_loaded_by_name_until_it_is_uninstalled(
    embedder: elmore.Embedder, installed: Path
) -> None:
    files = {"config.json", "model.safetensors", "README.md"}
    assert {path.name for path in installed.iterdir()} == files
    elmo = elmore.load("tiny-test", device="cpu")
    np.testing.assert_array_equal(elmo.embed([SENTENCE])[0], embedder.embed([SENTENCE])[0])
    assert elmo.language == "ko"
    for path in installed.parent.iterdir():
        shutil.rmtree(path)
    with pytest.raises(
        elmore.InputError, match=r"tiny-test: no such model; .* model \(en\), .* Packages of other"
    ):
        elmore.load("tiny-test")


def test_installed_task_is_no_model(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name looks like an id on the Hugging Face Hub, which is not asked."""
    declare(site, "tasks-of-en", "en", "tasks_of_en", group="elmore.tasks")
    (site / "tasks_of_en" / "ner").mkdir(parents=True)
    (site / "tasks_of_en" / "ner" / "task.json").write_text("{}")
    asked: list[str] = []

    def download(model: HubId) -> Path:
        asked.append(model.repo)
        return Path("hub")

    monkeypatch.setattr("elmore.checkpoint.pretrained.download", download)
    with pytest.raises(elmore.InputError, match=r"^en/ner is a trained task, not a biLM"):
        elmore.load("en/ner")
    assert asked == []
    assert find_model("en/srl") == find_model("en/ner@main") == Path("hub")
    assert asked == ["en/srl", "en/ner"]


def test_installed_models_are_described(bilm: BiLM, installed: Path) -> None:
    included, tiny = (package.describe() for package in model_packages())
    assert included["name"] == "en"
    assert included["package"] == "elmore"
    assert included["version"] == elmore.__version__
    assert included["parameters"] == 28_027_744  # its model card says 28 million
    assert tiny == {
        "name": "tiny-test",
        "package": "elmore-tiny-test",
        "version": "1",
        "path": str(installed),
        "language": "ko",
        "parameters": sum(p.numel() for p in bilm.parameters()),
        "bytes": sum(path.stat().st_size for path in installed.iterdir()),
    }


def test_results_have_the_name_of_the_package_not_of_its_folder(installed: Path) -> None:
    assert model_name("tiny-test") == "tiny-test" != installed.name
    assert model_name(installed) == model_name(f"{installed}/") == installed.name
    assert model_name(None) == model_name("en") == "en"
    assert model_name(".") == Path.cwd().name
    Path("latest").symlink_to(installed)
    assert model_name("latest") == "latest"


def test_a_path_takes_precedence_over_a_name(installed: Path) -> None:
    assert find_model("tiny-test") == installed
    write_directory(BiLM(BiLMConfig.tiny()), Path("tiny-test"))
    assert find_model("tiny-test") == Path("tiny-test")
    assert find_model(f"../site/{installed.name}") == Path("../site", installed.name)


def test_included_model_needs_no_metadata_and_cannot_be_replaced(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Path(elmore.__file__).parent / "models" / "en"
    declare(installed.parent, "other-english", "en", installed.name)
    assert find_model("en") == find_model(None) == expected
    assert [package.distribution for package in model_packages()] == ["elmore", "elmore-tiny-test"]
    monkeypatch.setattr("sys.path", [])
    assert find_model("en") == find_model(None) == expected
    assert model_packages() == [INCLUDED]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("elmore_missing", "there is no Python package elmore_missing"),
        ("elmore_failing.model", r"importing elmore_failing.model fails \(division by zero\)"),
        ("elmore_failing", r"elmore_failing has no config.json"),
        ("elmore_failing:model", "there is no Python package elmore_failing:model"),
    ],
)
def test_broken_package_gives_one_message_and_leaves_the_others_alone(
    installed: Path, value: str, reason: str
) -> None:
    site = installed.parent
    (site / "elmore_failing").mkdir()
    (site / "elmore_failing" / "__init__.py").write_text("1 / 0")
    declare(site, "elmore-broken", "broken", value)
    message = rf"^the package elmore-broken 2.0 of the model broken is broken: .*{reason}. Reinst"
    with pytest.raises(elmore.InputError, match=message):
        elmore.load("broken")
    assert elmore.load("tiny-test", device="cpu").dim == 32
    english, broken, tiny = (package.describe() for package in model_packages())
    assert "error" not in english
    assert "error" not in tiny
    assert re.search(message, broken["error"])


def test_broken_settings_do_not_break_the_list(installed: Path) -> None:
    settings = json.loads((installed / "config.json").read_text())
    settings["bilm"]["celldim"] = 3
    (installed / "config.json").write_text(json.dumps(settings))
    _, tiny = (package.describe() for package in model_packages())
    assert "unknown setting 'celldim'" in tiny["error"]


def test_name_of_two_packages_is_ambiguous(installed: Path) -> None:
    declare(installed.parent, "another", "tiny-test", installed.name)
    message = "several packages provide a model tiny-test: another 2.0, elmore-tiny-test 1. Uninst"
    with pytest.raises(elmore.InputError, match=message):
        find_package("tiny-test")
    assert find_model(None).name == "en"
