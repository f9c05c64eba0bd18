"""Run notebooks: python scripts/notebooks.py [FILE ...] runs them and stores their outputs.

Cells run in this process, which takes a fraction of the time that a Jupyter kernel needs. The
output of a cell is what it prints, and one image per open matplotlib figure.
"""

import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"

Cell = dict[str, Any]
Output = dict[str, Any]


def read_cells(path: Path) -> list[Cell]:
    """Return the cells of a notebook."""
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def source_of(cell: Cell) -> str:
    """Return the text of a cell."""
    return "".join(cell["source"])


def text_of(outputs: list[Output]) -> str:
    """Return what a cell has printed."""
    return "".join("".join(output["text"]) for output in outputs if "text" in output)


def images_of(outputs: list[Output]) -> list[bytes]:
    """Return the figures of a cell, as PNG files."""
    data = [output["data"]["image/png"] for output in outputs if "data" in output]
    return [base64.b64decode(image) for image in data]


def run_cells(
    cells: list[Cell], name: str, parameters: Mapping[str, object] | None = None
) -> Iterator[tuple[Cell, list[Output]]]:
    """Yield each code cell with its outputs, in the order in which they run.

    Args:
        cells: The cells of a notebook.
        name: Name of the notebook, for tracebacks.
        parameters: New values for names that the cell with the tag `parameters` assigns.
    """
    os.environ.setdefault("MPLBACKEND", "agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source_of(cell), f"{name}, cell {number}", "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            assert names.keys() >= (parameters or {}).keys()
            names.update(parameters or {})
        yield cell, [*_printed(printed.getvalue()), *_figures()]


def _printed(text: str) -> list[Output]:
    if not text:
        return []
    return [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}]


def _figures() -> list[Output]:
    """Return the open figures as images, and close them."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    from matplotlib import pyplot

    outputs = []
    for number in pyplot.get_fignums():
        image = io.BytesIO()
        pyplot.figure(number).savefig(image, format="png", dpi=80, bbox_inches="tight")
        data = base64.b64encode(image.getvalue()).decode()
        outputs.append({"data": {"image/png": data}, "metadata": {}, "output_type": "display_data"})
    pyplot.close("all")
    return outputs


def store_outputs(path: Path) -> None:
    """Run a notebook, and write it back with its outputs."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, new_working_directory(Path(folder)):
        runs = run_cells(notebook["cells"], path.name)
        for count, (cell, outputs) in enumerate(runs, start=1):
            cell["execution_count"], cell["outputs"] = count, outputs
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@contextlib.contextmanager
def new_working_directory(root: Path) -> Iterator[None]:
    """Work in `root`/docs/tutorials, where ../../examples are those of the repository."""
    folder = root / "docs" / "tutorials"
    folder.mkdir(parents=True)
    (root / "examples").symlink_to(TUTORIALS.parents[1] / "examples")
    with contextlib.chdir(folder):
        yield


if __name__ == "__main__":
    for file in [*map(Path, sys.argv[1:])] or sorted(TUTORIALS.parent.rglob("*.ipynb")):
        print(file, flush=True)
        store_outputs(file.resolve())
