"""Conditions of a measurement. Oracles: git, asked by the test, and the example of PEP 610."""

import json
import subprocess
from pathlib import Path

import pytest

import elmore
from elmore.analysis.conditions import changed_conditions, describe_conditions, source_commit
from elmore.embedder import Embedder


@pytest.fixture(autouse=True)
def _fresh_cache() -> None:
    source_commit.cache_clear()


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_commit_is_that_of_the_repository_with_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "elmore"
    package.mkdir(parents=True)
    source = package / "__init__.py"
    source.write_text("")
    monkeypatch.setattr(elmore, "__file__", str(source))
    git(tmp_path, "init", "-q")
    (tmp_path / "a.txt").touch()
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-qm", "Add a file")
    assert source_commit() is None  # the package is not part of the repository

    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Add the package")
    source_commit.cache_clear()
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert source_commit() == commit

    source.write_text("x = 1")
    assert source_commit() == commit  # as it was when the process started
    source_commit.cache_clear()
    assert source_commit() == f"{commit}-dirty"


def test_commit_of_an_installation_is_the_one_that_pip_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "elmore-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.4\nName: elmore\nVersion: 0.1.0\n")
    monkeypatch.setenv("PATH", "")  # no git
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(elmore, "__file__", str(tmp_path / "elmore" / "__init__.py"))
    assert source_commit() is None
    origin: dict = {"url": "file:///home/a/elmore", "dir_info": {"editable": True}}
    (metadata / "direct_url.json").write_text(json.dumps(origin))
    source_commit.cache_clear()
    assert source_commit() is None

    # The example of https://packaging.python.org/en/latest/specifications/direct-url
    origin = {
        "url": "https://github.com/pypa/pip.git",
        "vcs_info": {
            "vcs": "git",
            "requested_revision": "1.3.1",
            "commit_id": "7921be1537eac1e97bc40179a57f0349c2aee67d",
        },
    }
    (metadata / "direct_url.json").write_text(json.dumps(origin))
    source_commit.cache_clear()
    assert source_commit() == "7921be1537eac1e97bc40179a57f0349c2aee67d"
    monkeypatch.setattr(elmore, "__file__", str(tmp_path / "copy" / "elmore" / "__init__.py"))
    source_commit.cache_clear()
    assert source_commit() is None  # a copy of the source, not what pip installed


def test_only_conditions_that_change_scores_count_as_changes(embedder: Embedder) -> None:
    before = describe_conditions("tiny", embedder, {"a.txt": "1"})
    now = describe_conditions("renamed", embedder, {"a.txt": "1"})
    assert changed_conditions(before, now) == []
    assert changed_conditions({**before, "seed": 0}, now) == []  # written by older commits
    now |= {"precision": "int8", "data": {"a.txt": "2"}}
    assert changed_conditions(before, now) == ["precision", "data"]
