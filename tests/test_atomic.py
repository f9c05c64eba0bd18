"""Atomic writes. Oracle: the content before the write."""

from pathlib import Path

import pytest

from elmore.atomic import atomic_file, atomic_folder, refuse_existing
from elmore.errors import InputError


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "deep" / "f") as temporary:
        temporary.write_text("new")
        assert not (tmp_path / "deep" / "f").exists()
    assert (tmp_path / "deep" / "f").read_text() == "new"
    assert names(tmp_path / "deep") == {"f"}


def test_failed_write_keeps_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_file(tmp_path / "f") as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "d") as temporary:
        (temporary / "x").write_text("half")
        raise KeyboardInterrupt
    assert (tmp_path / "f").read_text() == (tmp_path / "d" / "x").read_text() == "old"
    assert names(tmp_path) == {"f", "d"}


def test_failed_rename_restores_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_text("old")
    original = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise OSError(5, "Input/output error")
        return original(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="Input/output"), atomic_folder(tmp_path / "d") as temporary:
        (temporary / "x").write_text("new")
    assert (tmp_path / "d" / "x").read_text() == "old"
    assert names(tmp_path) == {"d"}


def test_only_empty_folders_may_be_replaced_without_overwrite(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "f").touch()
    refuse_existing(tmp_path / "empty", overwrite=False)
    refuse_existing(tmp_path / "nothing", overwrite=False)
    refuse_existing(tmp_path / "f", overwrite=True)
    with pytest.raises(InputError, match="f exists already"):
        refuse_existing(tmp_path / "f", overwrite=False)
