"""Run folders. Oracle: the files that a test wrote."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from elmore.errors import InputError
from elmore.signals import InterruptedRunError
from elmore.training.checkpoints import Checkpoint, write_checkpoint
from elmore.training.run_folder import RunFolder


@dataclass
class Settings:
    lr: float = 0.5


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run", "model.bin")


def complete(folder: RunFolder, content: str) -> None:
    folder.create(Settings())
    (folder.path / folder.last_file).write_text(content)


def test_existing_run_is_overwritten_only_with_the_option_and_other_folders_never(
    folder: RunFolder, tmp_path: Path
) -> None:
    folder.check(resume=False, overwrite=False)
    complete(folder, "old")
    with pytest.raises(InputError, match="run exists already"):
        folder.check(resume=False, overwrite=False)
    folder.check(resume=False, overwrite=True)
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "letter.txt").touch()
    for path in ("documents", "documents/letter.txt"):
        with pytest.raises(InputError, match=r"has no config.toml, so elmore did not write it"):
            RunFolder(tmp_path / path, "model.bin").check(resume=False, overwrite=True)


def test_run_with_files_of_others_or_with_inputs_is_not_overwritten(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", "model.bin", ("plot.png", "*.txt"))
    complete(folder, "old")
    for name in ("plot.png", "vocab.txt", "metrics.jsonl"):
        (folder.path / name).touch()
    folder.check(resume=False, overwrite=True, inputs=(tmp_path / "text.txt", None))
    for inputs in ((folder.path,), (None, folder.path / "vocab.txt")):
        with pytest.raises(InputError, match="would replace the input"):
            folder.check(resume=False, overwrite=True, inputs=inputs)
    (folder.path / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"contains thesis.tex, which elmore did not write"):
        folder.check(resume=False, overwrite=True)


def test_failure_before_the_settings_are_written_keeps_the_earlier_run(folder: RunFolder) -> None:
    complete(folder, "old")
    with pytest.raises(TypeError):
        folder.create(Settings(), {"data.json": object()})  # not JSON
    assert (folder.path / folder.last_file).read_text() == "old"
    assert [path.name for path in folder.path.parent.iterdir()] == ["run"]


def test_only_an_incomplete_run_resumes(folder: RunFolder) -> None:
    with pytest.raises(InputError, match="no run to resume"):
        folder.check(resume=True, overwrite=False)
    folder.create(Settings())
    folder.check(resume=True, overwrite=False)
    complete(folder, "new")
    folder.checkpoints.mkdir()  # killed before it could be deleted
    with pytest.raises(InputError, match="is complete; there is nothing to resume"):
        folder.check(resume=True, overwrite=False)
    assert not folder.checkpoints.exists()


def test_complete_run_is_kept_until_its_replacement_is_complete(folder: RunFolder) -> None:
    previous = folder.path.with_name(".run.previous") / folder.last_file
    complete(folder, "old")
    folder.create(Settings())
    assert previous.read_text() == "old"
    folder.create(Settings())  # the incomplete replacement is replaced
    assert previous.read_text() == "old"
    complete(folder, "new")
    folder.finish()
    assert not previous.parent.exists()
    assert (folder.path / folder.last_file).read_text() == "new"
    assert folder.settings.read_text() == "lr = 0.5\n"


def test_message_of_an_interruption_says_what_was_saved(folder: RunFolder) -> None:
    def interrupt(*, resume: bool, create: bool) -> str:
        with (
            pytest.raises(InterruptedRunError) as error,
            folder.explain_interruption(resume=resume),
        ):
            if create:
                folder.create(Settings())
            raise KeyboardInterrupt
        return str(error.value)

    assert "nothing was saved; run the same command again" in interrupt(resume=False, create=False)
    assert "resume the run to start from" in interrupt(resume=False, create=True)
    assert "resume the run to start from" in interrupt(resume=True, create=False)
    assert "nothing was saved" in interrupt(resume=False, create=False)  # to overwrite it
    write_checkpoint(folder.checkpoints, 1, Checkpoint({}, {}))
    assert "resume the run to continue from the last" in interrupt(resume=True, create=False)


def test_other_settings_are_rejected(folder: RunFolder) -> None:
    folder.require_settings(Settings(), Settings())
    with pytest.raises(InputError, match=r"started with other settings.*config\.toml"):
        folder.require_settings(Settings(), Settings(lr=0.1))


def test_metrics_after_the_checkpoint_are_dropped(folder: RunFolder) -> None:
    folder.drop_metrics_after("step", 2)
    assert folder.read_metrics("step") == []
    folder.create(Settings())
    records = [{"step": step, "loss": step / 8} for step in (1, 2, 3)]
    for record in records:
        folder.append_metrics(record)
    assert folder.read_metrics("step") == records
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(records[0]))  # killed before the end of the line
    folder.drop_metrics_after("step", 2)
    assert folder.read_metrics("step") == records[:2]


@pytest.mark.parametrize(
    "line",
    ['{"step": 1', "5", "[1]", "\x00\x00\x00", '{"seconds": 1}', '{"step": "1"}', "[" * 100_000],
    ids=range(7),
)
def test_damaged_line_of_the_metrics_is_named(folder: RunFolder, line: str) -> None:
    folder.create(Settings())
    (folder.path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n{{"step": 2}}\n')
    for read in (lambda: folder.read_metrics("step"), lambda: folder.drop_metrics_after("step", 1)):
        with pytest.raises(InputError, match=r"metrics.jsonl, line 2 is damaged"):
            read()


def test_newest_intact_checkpoint_is_used(folder: RunFolder) -> None:
    notes: list[dict] = []
    assert folder.newest_checkpoint(notes.append) is None
    paths = [
        write_checkpoint(folder.checkpoints, step, Checkpoint({"x": torch.ones(3)}, {"step": step}))
        for step in (1, 2)
    ]
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    path, checkpoint = folder.newest_checkpoint(notes.append)
    assert (path, checkpoint.metadata) == (paths[0], {"step": 1})
    assert len(notes) == 1
    assert paths[1].name in notes[0]["note"]
    assert [p.suffix for p in sorted(folder.checkpoints.iterdir())] == [".safetensors", ".damaged"]
    paths[0].write_bytes(b"")
    with pytest.raises(InputError, match=r"no checkpoint can be used: .*step-000000001"):
        folder.newest_checkpoint(notes.append)


def test_checkpoints_of_an_earlier_version_are_kept(folder: RunFolder) -> None:
    folder.checkpoints.mkdir(parents=True)
    path = folder.checkpoints / "step-000000001.safetensors"
    save_file({"x": torch.ones(3)}, path, {"metadata": "{}", "checksum": "123"})
    notes: list[dict] = []
    with pytest.raises(InputError, match="written by an earlier version of elmore"):
        folder.newest_checkpoint(notes.append)
    assert list(folder.checkpoints.iterdir()) == [path]
    assert notes == []


def test_new_run_behind_a_link_keeps_the_old_one_until_it_is_complete(
    folder: RunFolder, tmp_path: Path
) -> None:
    complete(folder, "old")
    link = RunFolder(tmp_path / "link", folder.last_file)
    link.path.symlink_to(folder.path)
    link.check(resume=False, overwrite=True)
    link.create(Settings())
    link.append_metrics({"step": 1})
    assert link.path.is_symlink()
    assert (tmp_path / ".run.previous" / folder.last_file).read_text() == "old"
    (link.path / folder.last_file).write_text("new")
    link.finish()
    assert (folder.path / folder.last_file).read_text() == "new"
    assert not (tmp_path / ".run.previous").exists()


def test_run_that_was_moved_aside_by_a_killed_process_is_restored(folder: RunFolder) -> None:
    complete(folder, "old")
    folder.path.rename(folder.path.with_name(".run.previous"))  # killed before the next rename
    with pytest.raises(InputError, match="run exists already"):
        folder.check(resume=False, overwrite=False)
    assert (folder.path / folder.last_file).read_text() == "old"


@pytest.mark.parametrize("name", [".", ".."])
def test_folder_that_contains_the_working_directory_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    with pytest.raises(InputError, match="is or contains the working directory"):
        RunFolder(Path(name), "model.bin").check(resume=False, overwrite=True)
