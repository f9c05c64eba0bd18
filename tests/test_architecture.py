"""Imports in order, lazy imports, public names. Oracles: syntax trees; sys.modules; extras."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import elmore

ORDER = [
    "errors", "signals", "threads", "prefetch", "progress", "checksum", "atomic", "schema",
    "device", "transfer", "text", "bilm", "inference",
    "mix", "checkpoint", "embedder", "vectors", "training", "pretrain", "tasks", "analysis",
    "integrations", "compat", "server", "cli",
]  # fmt: skip
SOURCE = Path(__file__).parents[1] / "src" / "elmore"
FILES = sorted(SOURCE.rglob("*.py"))
# What the extras install. Only the functions that need them may import these modules.
OPTIONAL = {
    "aiohttp", "faiss", "fastapi", "matplotlib", "onnx", "onnxruntime", "orjson",
    "prometheus_client", "pydantic", "ray", "sentence_transformers", "sklearn", "spacy",
    "tensorboard", "transformers", "uvicorn",
}  # fmt: skip
MODULES = {"faiss_cpu": "faiss", "scikit_learn": "sklearn"}
"""Packages whose module has another name."""


def imported_modules(code: str) -> set[str]:
    """Return the top-level modules of elmore that the code imports, anywhere and in any form."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports must be absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("elmore.")} & set(ORDER)


@pytest.mark.parametrize(
    "code",
    [
        "import elmore.tasks",
        "import elmore.tasks.ner as ner",
        "from elmore import tasks",
        "from elmore.tasks import load",
        "from elmore.tasks.ner.task import Task",
        "def f():\n    import os, elmore.tasks.run",
    ],
)
def test_imported_modules_recognizes_every_form_of_import(code: str) -> None:
    assert imported_modules(code) == {"tasks"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_follow_the_order_of_modules(file: Path) -> None:
    module = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    if module in ("__init__", "__main__"):
        return  # these may import all modules
    later = set(ORDER[ORDER.index(module) + 1 :])
    imported = imported_modules(file.read_text(encoding="utf-8"))
    assert not imported & later, f"{module} may only import modules before it in ORDER"


def test_order_lists_every_module() -> None:
    modules = {
        p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert modules - {"__init__", "__main__"} == set(ORDER)


@pytest.mark.parametrize(
    "code",
    [
        "import elmore; dir(elmore)",
        "import elmore.cli; elmore.cli.app(['--help'], result_action='return_value')",
        "import elmore; elmore.tokenize('He sat.')",
    ],
)
def test_torch_is_not_imported_when_not_needed(code: str) -> None:
    check = f"import sys; {code}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True)


def test_embedding_does_not_import_slow_or_optional_modules() -> None:
    """Importing PyTorch's compiler, for example, would take longer than the embedding."""
    modules = {"torch._dynamo", "h5py", "huggingface_hub", *OPTIONAL}
    check = "import sys, elmore; elmore.load(device='cpu').embed(['He sat.'])"
    check += f"; sys.exit(str({modules} & set(sys.modules) or ''))"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert result.stderr.strip() == ""


def test_every_package_of_an_extra_is_optional() -> None:
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    [every] = map(Requirement, extras["all"])
    packages = {
        Requirement(text).name.replace("-", "_") for extra in every.extras for text in extras[extra]
    }
    assert {MODULES.get(package, package) for package in packages - {"elmore"}} == OPTIONAL


def test_all_public_names_exist() -> None:
    for name in elmore.__all__:
        assert getattr(elmore, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'elmo'"):
        elmore.elmo  # noqa: B018


def test_python_m_elmore_runs_the_command() -> None:
    command = [sys.executable, "-m", "elmore", "--version"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert result.stdout.strip() == elmore.__version__
