"""Tutorials. Oracles: the outputs stored in the notebooks; the schema of their format."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from elmore.pretrain.config import read_config
from elmore.pretrain.run import pretrain
from scripts.notebooks import Cell, new_working_directory, read_cells, run_cells, source_of, text_of
from tests.test_docs import ROOT, anchors_of, name_of, same_output

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
TRANSLATIONS = sorted((ROOT / "docs").glob("*/tutorials/*.ipynb"))

# Smaller runs of notebooks that train: their outputs are compared up to the cell with parameters.
PARAMETERS: dict[str, Mapping[str, object]] = {
    "elmo-in-your-model": {"SEEDS": 1, "EPOCHS": 1},
    "finetune-on-a-domain": {
        "MODEL": "runs/base",
        "MODULES": ["argparse", "logging", "threading"],
        "EPOCHS": 1,
    },
    "proteins": {"PROTEINS": 80, "EPOCHS": 1},
    "train-your-language": {"SENTENCES": 300, "EPOCHS": 1},
}

every_tutorial = pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
every_translation = pytest.mark.parametrize("path", TRANSLATIONS, ids=name_of)
every_notebook = pytest.mark.parametrize("path", [*TUTORIALS, *TRANSLATIONS], ids=name_of)


@pytest.mark.docs
@every_tutorial
def test_cells_run_and_print_the_stored_output(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmore.pretrain.run.CACHE", tmp_path / "cache")
    monkeypatch.setattr("elmore.pretrain.finetune.CACHE", tmp_path / "cache")
    with new_working_directory(tmp_path):
        check_outputs(path)


def check_outputs(path: Path) -> None:
    parameters = PARAMETERS.get(path.stem)
    if path.stem == "finetune-on-a-domain":
        config = read_config(size="tiny", changes=["training.streams=64", "training.negatives=256"])
        pretrain([ROOT / "examples" / "corpus.txt"], Path("runs/base"), config, device="cpu")
    compare = True
    for cell, outputs in run_cells(read_cells(path), path.name, parameters):
        compare = compare and not (parameters and "parameters" in cell["metadata"].get("tags", []))
        if not compare:
            continue
        stored, printed = text_of(cell["outputs"]), text_of(outputs)
        assert same_output(stored, printed), (
            f"the output of this cell has changed; if that is right, store the new one with "
            f"python scripts/notebooks.py {path}\n\n{source_of(cell)}\n\n{stored}\n\n{printed}"
        )
        assert len(outputs) == len(cell["outputs"])


@every_translation
def test_translation_has_the_code_outputs_and_formulas_of_the_original(path: Path) -> None:
    cells = read_cells(path)
    original = read_cells(ROOT / "docs" / "tutorials" / path.name)  # which the test above runs
    assert [cell["cell_type"] for cell in cells] == [cell["cell_type"] for cell in original]
    for ours, theirs in zip(cells, original, strict=True):
        if ours["cell_type"] == "code":
            assert source_of(ours) == source_of(theirs)
            assert ours["outputs"] == theirs["outputs"]
        else:
            assert formulas_in(ours) == formulas_in(theirs)
            assert source_of(ours) != source_of(theirs)


def formulas_in(cell: Cell) -> list[str]:
    return re.findall(r"\$\$.+?\$\$", source_of(cell), re.DOTALL)


@every_notebook
def test_notebook_was_run_from_top_to_bottom(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert all(output["output_type"] != "error" for cell in code for output in cell["outputs"])
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert path.stat().st_size < 200_000


@every_notebook
def test_links_lead_to_files_and_headings(path: Path) -> None:
    for cell in read_cells(path):
        if cell["cell_type"] != "markdown":
            continue
        for target, anchor in re.findall(r"\]\(([^)\s#]+)(?:#([^)\s]+))?\)", source_of(cell)):
            if target.startswith("https://"):
                continue
            file = (path.parent / target).resolve()
            assert file.exists(), f"{path.name} links to {target}"
            assert not anchor or anchor in anchors_of(file), f"{path.name}: {target}#{anchor}"
