"""Samples for quick runs. Oracle: the readers of the full data."""

import lzma
from pathlib import Path

from elmore.analysis.quick import sample_of, sample_semcor, sampled_files
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


def test_files_with_a_sampler_are_sampled_and_others_are_used_as_they_are(tmp_path: Path) -> None:
    lines = "".join(f"{n}\n" for n in range(100))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.txt.xz").write_bytes(lzma.compress(lines.encode()))
    paths = [tmp_path / "a" / "c.txt.xz", tmp_path / "b", tmp_path / "b" / "c.txt.xz"]
    with sampled_files(paths, [sample_of("lines", 3), None, sample_of("lines", 4)]) as files:
        assert len(files[0].read_text().splitlines()) == 3
        assert files[1] == paths[1]
        assert len(files[2].read_text().splitlines()) == 4
    assert [file.exists() for file in files] == [False, True, False]
