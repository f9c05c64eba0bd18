"""Files of datasets. Oracles: files that the test writes; sha256sum's published values."""

import gzip
import shutil
from pathlib import Path

import pytest

from elmore.analysis.data_files import checksums, find_file, find_files
from elmore.analysis.results import NotAvailableError
from elmore.checkpoint.pretrained import extracted
from elmore.errors import InputError

# Test vectors of FIPS 180: the empty message and "abc".
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("name", ["a.txt", "a.txt.xz", "a.txt.gz"])
def test_file_is_found_compressed_or_not(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert find_file(tmp_path, "a.txt") == tmp_path / name
    assert find_file(tmp_path, "*.txt") == tmp_path / name
    assert find_file(tmp_path.parent, f"{tmp_path.name}/**/a.txt") == tmp_path / name


def test_missing_and_ambiguous_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(NotAvailableError, match=r"/a\.txt not found"):
        find_file(tmp_path, "a.txt")
    with pytest.raises(NotAvailableError, match="/wic not found"):
        find_file(tmp_path / "wic", "a.txt")
    (tmp_path / "a.txt").touch()
    (tmp_path / "a.txt.xz").touch()
    with pytest.raises(InputError, match=r"2 files for a\.txt \(a\.txt, a\.txt\.xz\)"):
        find_file(tmp_path, "a.txt")


def test_patterns_are_looked_up_and_paths_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.txt.xz").touch()
    given = Path("elsewhere", "b[1].txt")
    assert find_files(tmp_path, ["*.txt", given]) == [tmp_path / "a.txt.xz", given]


def test_folder_and_archive_have_the_same_files(tmp_path: Path) -> None:
    folder = tmp_path / "sets"
    folder.mkdir()
    (folder / "a.txt").write_text("abc")
    archive = Path(shutil.make_archive(str(folder), "xztar", tmp_path, "sets"))
    for path in (folder, archive):
        with extracted(path) as files:
            assert [file.read_text() for file in files.rglob("*.txt")] == ["abc"]


def test_damaged_archive_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "sets.tar.gz"
    path.write_bytes(gzip.compress(b"no tar file")[:-4])
    with pytest.raises(InputError, match="is not a readable archive"), extracted(path):
        pass


def test_checksums_are_sha256_by_path(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "b.txt"
    (data / "sets").mkdir(parents=True)
    (data / "a.txt").write_text("abc")
    (data / "sets" / "c.txt").touch()
    elsewhere.write_text("abc")
    paths = [data / "a.txt", data / "sets", elsewhere]
    assert checksums(paths, data) == {"a.txt": ABC, "sets/c.txt": EMPTY, "b.txt": ABC}
