"""Atomic writes. Oracle: the content before the write."""

import subprocess
import sys
from pathlib import Path

import pytest

from elmore.atomic import atomic_file, atomic_folder, lock, refuse_existing
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


HOLDER = """
import sys
from pathlib import Path
from elmore.atomic import lock
with lock(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_lock_refuses_other_processes_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    for kill in (False, True):
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as holder:  # fmt: skip
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(InputError, match="another process is writing to"), lock(path):
                pass
            if kill:
                holder.kill()
        with lock(path), pytest.raises(InputError, match="another process"), lock(path):
            pass
        assert names(tmp_path / "deep") == set()
