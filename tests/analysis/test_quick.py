"""Samples for quick runs. Oracle: the readers of the full data."""

import lzma
from pathlib import Path

from elmore.analysis.quick import sample_of, sample_semcor, sampled_folder
from elmore.analysis.wsd import read_wsd


def test_sample_of_semcor_is_valid_and_keeps_table_4(tmp_path: Path) -> None:
    words = ["play" if n in (7, 33) else f"w{n}" for n in range(100)]
    sentences = "".join(
        f'<sentence id="s{n}">\n<wf lemma="a" pos="X">{word}</wf>\n</sentence>\n'
        for n, word in enumerate(words)
    )
    text = f'<?xml version="1.0"?>\n<corpus>\n<text id="d0">\n{sentences}</text>\n</corpus>\n'
    (tmp_path / "semcor.xml").write_text(text)
    (tmp_path / "keys").write_text("")
    sample_semcor(tmp_path / "semcor.xml", tmp_path / "sample.xml")
    kept = [s.tokens for s in read_wsd(tmp_path / "sample.xml", tmp_path / "keys")]
    assert kept == [["w0"], ["play"], ["play"], ["w40"], ["w80"]]


def test_folder_has_samples_and_copies(tmp_path: Path) -> None:
    lines = "".join(f"{n}\n" for n in range(100))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt.xz").write_bytes(lzma.compress(lines.encode()))
    (tmp_path / "b.txt").write_text(lines)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "d.txt").write_text("d")
    samplers = {"**/a.txt": sample_of("lines", 3)}
    with sampled_folder(tmp_path, ["**/a.txt", "b.txt", "c"], samplers) as folder:
        assert len((folder / "sub" / "a.txt").read_text().splitlines()) == 3
        assert (folder / "b.txt").read_text() == lines
        assert (folder / "c" / "d.txt").read_text() == "d"
    assert not folder.exists()
