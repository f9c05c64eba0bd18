"""experiments/intrinsic.py (section 5.3 of the paper) on tiny texts. Oracle: scores by hand."""

import json
import lzma
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from elmore.embedder import Embedder

SCRIPT = Path(__file__).parents[2] / "experiments" / "intrinsic.py"
SETS = ["senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015"]
INDEX = "bass%1:07:01:: 04986883 1 2\nbass%1:05:00:: 02566109 2 0\ncod%1:05:00:: 02522399 1 1\n"


def write_set(path: Path, lemma: str, sense: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    instance = f'<instance id="d0.s0.t0" lemma="{lemma}" pos="NOUN">{lemma}</instance>'
    data = f"<corpus>\n<sentence>\n<wf>A</wf>\n{instance}\n</sentence>\n</corpus>\n"
    path.with_name(path.name + ".data.xml").write_text(data)
    path.with_name(path.name + ".gold.key.txt").write_text(f"d0.s0.t0 {sense}\n")


@pytest.fixture
def folder(tmp_path: Path, embedder: Embedder) -> Path:
    """A model and data in the expected layout, with an archive and compressed files."""
    embedder.save(tmp_path / "model")
    wsd, pos = tmp_path / "wsd", tmp_path / "pos"
    write_set(wsd / "semcor", "bass", "bass%1:05:00::")
    (wsd / "index.sense.xz").write_bytes(lzma.compress(INDEX.encode()))
    sets = tmp_path / "Evaluation_Datasets"
    for name in SETS:
        # The nearest sense is always correct; the first sense is correct in one set only.
        lemma, sense = ("cod", "cod%1:05:00::") if name == SETS[0] else ("bass", "bass%1:05:00::")
        write_set(sets / name / name, lemma, sense)
    shutil.make_archive(str(wsd / sets.name), "xztar", tmp_path, sets.name)
    pos.mkdir()
    word = "1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
    for name in ("train", "dev", "test"):
        (pos / f"en-{name}.conllu").write_text(word)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *args: object) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, args)])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_scores_are_printed_as_json_and_as_a_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (folder / "model", "--wsd", folder / "wsd", "--pos", folder / "pos")
    run(monkeypatch, *arguments, "--json")
    scores = json.loads(capsys.readouterr().out)
    assert scores["first sense"] == {"ALL": 20, **dict.fromkeys(SETS, 0), "senseval2": 100}
    for layer in range(3):
        assert scores[f"layer {layer}"] == dict.fromkeys(["ALL", *SETS, "POS"], 100)

    run(monkeypatch, *arguments)
    header, first, *layers = capsys.readouterr().out.splitlines()
    assert header.split() == ["ALL", *SETS, "POS"]
    assert first.split() == ["first", "sense", "20.0", "100.0", *["0.0"] * 4]
    assert [line.split() for line in layers] == [
        ["layer", str(j), *["100.0"] * 7] for j in range(3)
    ]


def test_invalid_input_prints_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pos" / "en-dev.conllu").unlink()
    for arguments, message in [
        ([folder / "model"], "give --wsd DIR, --pos DIR or both"),
        ([folder / "model", "--pos", folder / "pos"], "0 files *dev.conllu or *dev.conllu.xz"),
        ([folder / "none", "--pos", folder / "pos"], "no such model"),
    ]:
        with pytest.raises(SystemExit, match="2"):
            run(monkeypatch, *arguments)
        assert message in capsys.readouterr().err
