"""Atomic writes. Oracle: the content before the write."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from elmore.atomic import (
    atomic_file,
    atomic_folder,
    lock,
    refuse_existing,
    remove_leftovers_in,
    temporary_folder,
)
from elmore.errors import InputError


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "deep" / "f") as temporary:
        temporary.write_text("new")
        assert not (tmp_path / "deep" / "f").exists()
    assert (tmp_path / "deep" / "f").read_text() == "new"
    assert names(tmp_path / "deep") == {"f"}


def test_files_are_on_disk_before_they_are_visible_and_their_names_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the files and folders that are synchronized before and after the rename."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    before: set[str] = set()
    after: set[str] = set()

    def fsync(number: int) -> None:
        visible = any(path.exists() for path in (tmp_path / "f", tmp_path / "d"))
        (after if visible else before).add(Path(f"/proc/self/fd/{number}").resolve().name)

    monkeypatch.setattr("os.fsync", fsync)
    with atomic_folder(tmp_path / "d") as temporary:
        (temporary / "inner").mkdir()
        (temporary / "config.toml").write_text("x")
        (temporary / "inner" / "weights").write_text("x")
        name = temporary.name
    assert before == {"config.toml", "weights", "inner", name}
    assert after == {tmp_path.name}
    (tmp_path / "d").rename(tmp_path / "moved")
    before.clear()
    after.clear()
    with atomic_file(tmp_path / "f") as temporary:
        temporary.write_text("x")
        name = temporary.name
    assert before == {name}
    assert after == {tmp_path.name}


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
    refuse_existing(tmp_path / "empty", overwrite=False, contents=("run.json",))
    refuse_existing(tmp_path / "nothing", overwrite=False)
    refuse_existing(tmp_path / "f", overwrite=True)
    with pytest.raises(InputError, match="f exists already"):
        refuse_existing(tmp_path / "f", overwrite=False)


@pytest.mark.parametrize("overwrite", [False, True])
def test_folders_are_not_replaced_by_files(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "results.h5").mkdir()
    with pytest.raises(InputError, match=r"results.h5 is a directory; expected the name of a file"):
        refuse_existing(tmp_path / "results.h5", overwrite=overwrite)


def test_overwrite_replaces_only_folders_of_the_same_kind(tmp_path: Path) -> None:
    def refused(path: Path, message: str) -> None:
        before = sorted(path.rglob("*")) if path.is_dir() else path.read_text()
        with pytest.raises(InputError, match=message):
            refuse_existing(path, overwrite=True, contents=("run.json", "weights-*"))
        assert before == (sorted(path.rglob("*")) if path.is_dir() else path.read_text())

    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "weights-1").touch()
    refused(folder, r"d has no run.json, so elmore did not write it")
    (folder / "run.json").touch()
    (folder / ".run.json.0123abcd.tmp").touch()  # of a killed process
    refuse_existing(folder, overwrite=True, contents=("run.json", "weights-*"))
    (folder / "thesis.tex").touch()
    refused(folder, r"d contains thesis.tex, which elmore did not write")
    (tmp_path / "f").touch()
    refused(tmp_path / "f", r"f has no run.json")


def test_names_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"m\\udcff' is not UTF-8. Choose another name"):
        refuse_existing(tmp_path / "m\udcff", overwrite=False)


def test_inputs_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    (tmp_path / "link").symlink_to("model")
    for path in ("model", "link"):
        for file in (tmp_path / "model", tmp_path / "link", f"{tmp_path}/model/config.json"):
            with pytest.raises(InputError, match="would replace the input"):
                refuse_existing(tmp_path / path, overwrite=True, inputs=[None, file])
    refuse_existing(tmp_path / "model" / "new", overwrite=True, inputs=[tmp_path / "model"])


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    with atomic_folder(tmp_path / "link") as temporary:
        (temporary / "x").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "d" / "x").read_text() == "new"
    assert names(tmp_path) == {"d", "link"}


@pytest.mark.parametrize("atomic", [atomic_file, atomic_folder])
def test_a_full_disk_is_reported_with_the_path(tmp_path: Path, atomic) -> None:
    with (
        pytest.raises(OSError, match=r"No space left on device: .*f'"),
        atomic(tmp_path / "f"),
    ):
        raise OSError(28, "No space left on device")
    with pytest.raises(OSError, match=r"No such file.*missing'"), atomic_file(tmp_path / "f"):
        (tmp_path / "missing").read_text()


def test_errors_do_not_name_temporary_files(tmp_path: Path) -> None:
    def errors(file: Path) -> list[OSError]:
        reason = "No space left on device"
        return [OSError(28, reason), OSError(28, reason, str(file)), OSError(f"{file}: {reason}")]

    for i in range(3):
        with (
            pytest.raises(OSError, match="No space left") as error,
            atomic_folder(tmp_path / "m") as folder,
            atomic_file(folder / "weights") as file,
        ):
            raise errors(file)[i]
        assert str(tmp_path / "m" / "weights") in str(error.value)
        assert ".tmp" not in str(error.value)


def test_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(OSError, match=r"cannot be written: its parent is a file: .*x.parquet"),
        lock(tmp_path / "file" / "x.parquet"),
    ):
        pass
    if Path("/proc/self").exists():
        with (
            pytest.raises(OSError, match=r"cannot be written: No such file.*: '/proc/x.parquet'"),
            lock(Path("/proc/x.parquet")),
        ):
            pass


TEMPORARY = """
import sys
from elmore.atomic import temporary_folder
with temporary_folder() as folder:
    (folder / "file").touch()
    print(folder.name, flush=True)
    sys.stdin.read()
"""


def test_temporary_folder_of_a_killed_process_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    others = tmp_path / "elmore-notes"
    others.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", TEMPORARY], env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        held = tmp_path / holder.stdout.readline().strip()
        with temporary_folder() as folder:
            assert folder.is_dir()
            assert (held / "file").exists()  # in use
        assert not folder.exists()
        holder.kill()
    assert held.exists()
    with monkeypatch.context() as as_another_user:
        as_another_user.setattr("os.getuid", lambda: -1, raising=False)
        with temporary_folder():
            assert held.exists()
    with temporary_folder():
        assert not held.exists()
    assert names(tmp_path) == {others.name}


def test_a_lock_removes_the_leftovers_of_killed_processes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for folder in (run / "checkpoints", tmp_path / ".run.01234567.tmp"):
        folder.mkdir(parents=True)
    (run / "kept.tmp").touch()
    (run / ".x.89abcdef.tmp").touch()  # of another process, perhaps
    (run / "checkpoints" / ".y.89abcdef.tmp").touch()
    (tmp_path / ".other.01234567.tmp").touch()
    (tmp_path / ".run.00000000.old").mkdir()
    with lock(run):
        assert len(list(run.rglob("*"))) == 4
    assert names(tmp_path) == {"run", ".other.01234567.tmp"}
    remove_leftovers_in(run)
    assert sorted(p.name for p in run.rglob("*")) == ["checkpoints", "kept.tmp"]


def test_a_folder_killed_while_it_is_replaced_is_restored(tmp_path: Path) -> None:
    (tmp_path / ".run.00000000.old").mkdir()
    (tmp_path / ".run.00000000.old" / "x").write_text("old")
    with lock(tmp_path / "run"):
        assert (tmp_path / "run" / "x").read_text() == "old"
    assert names(tmp_path) == {"run"}


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


POLL = """
import sys
from pathlib import Path
from elmore.atomic import is_locked

print("polling", flush=True)
while not Path(sys.argv[2]).exists():
    is_locked(Path(sys.argv[1]))
"""


def test_asking_whether_a_path_is_locked_keeps_nobody_from_locking_it(tmp_path: Path) -> None:
    path, stop = tmp_path / "run", tmp_path / "stop"
    command = [sys.executable, "-c", POLL, str(path), str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "polling\n"
            for _ in range(2000):
                with lock(path):
                    pass
        finally:
            stop.touch()
    assert process.returncode == 0
    assert not list(tmp_path.glob("*.lock"))
