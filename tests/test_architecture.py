"""Rules of the whole: imports point one way; importing and --help stay light; flags are frozen."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ORDER = [
    "errors", "atomic", "schema", "transfer", "text", "bilm", "mix", "checkpoint", "batches",
    "embedder", "vectors",
    "training", "pretrain", "tasks", "analysis", "compat", "cli",
]  # fmt: skip
SOURCE = Path(__file__).parents[1] / "src" / "elmore"


def imports(file: Path) -> set[str]:
    """Names of the parts of `elmore` that a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("elmore."):
            names.add(node.module.split(".")[1])
    return names


@pytest.mark.parametrize("part", ORDER)
def test_imports_point_down(part: str) -> None:
    above = set(ORDER[ORDER.index(part) + 1 :])
    files = [SOURCE / f"{part}.py", *(SOURCE / part).rglob("*.py")]
    for file in filter(Path.exists, files):
        assert not imports(file) & above, f"{file.name} imports from a part above {part!r}"


def test_every_part_has_its_place() -> None:
    parts = {p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert parts - {"__init__", "__main__"} == set(ORDER)


@pytest.mark.parametrize(
    "code",
    [
        "import elmore; dir(elmore)",
        "import elmore.cli; elmore.cli.app(['--help'], result_action='return_value')",
        "import elmore; elmore.tokenize('He sat.')",
    ],
)
def test_torch_loads_only_when_it_is_needed(code: str) -> None:
    check = f"import sys; {code}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True)


@pytest.mark.parametrize("module", ["torch._dynamo", "h5py"])
def test_embedding_loads_no_more_than_it_needs(module: str) -> None:
    """PyTorch's compiler would take longer than all the rest."""
    check = "import sys, elmore; elmore.load(device='cpu').embed(['He sat.'])"
    check += f"; sys.exit({module!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True)


def test_all_public_names_exist() -> None:
    import elmore

    for name in elmore.__all__:
        assert getattr(elmore, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'elmo'"):
        elmore.elmo  # noqa: B018


def test_python_dash_m_is_the_command() -> None:
    command = [sys.executable, "-m", "elmore", "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    import elmore

    assert done.stdout.strip() == elmore.__version__
