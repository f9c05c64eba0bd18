"""Extras, pinned packages. Oracles: pyproject.toml; requirements of the installed packages."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DEV = [
    Requirement(text)
    for text in (
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["dev"],
        *PROJECT["project"]["optional-dependencies"]["tools"],
    )
]
EXTRAS = PROJECT["project"]["optional-dependencies"]
NOT_IN_ALL = {
    "all",
    "browser",  # to work on elmore, not with it
    "dev",
    "tools",
}
TOOLS = [Requirement(text) for text in EXTRAS["tools"]]
RAY = [Requirement(text) for text in PROJECT["project"]["optional-dependencies"]["ray"]]
# Dependencies of the CUDA build of PyTorch; CI uses its CPU build.
CUDA = re.compile("nvidia-|cuda-|triton")


@pytest.fixture
def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("requirement", [*DEV, *RAY], ids=str)
def test_requirement_is_pinned_to_a_version_it_allows(
    requirement: Requirement, pins: dict[str, str]
) -> None:
    assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("text", PROJECT["project"]["dependencies"])
def test_oldest_supported_version_is_the_one_that_is_tested(
    text: str, pins: dict[str, str]
) -> None:
    lines = (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    requirement = Requirement(text)
    [oldest] = [s.version for s in requirement.specifier if s.operator == ">="]
    expected = pins["torch"] if requirement.name == "torch" else oldest  # its oldest is 3 GB
    assert Version(tested[requirement.name]) == Version(expected)


def test_dependencies_of_dev_requirements_are_pinned(pins: dict[str, str]) -> None:
    names = {canonicalize_name(requirement.name) for requirement in DEV}
    seen: set[str] = set()
    while names:
        name = names.pop()
        seen.add(name)
        for needed in map(Requirement, requirements_of(name)):
            required = canonicalize_name(needed.name)
            applies = needed.marker is None or needed.marker.evaluate({"extra": ""})
            if applies and required not in seen and not CUDA.match(required):
                names.add(required)
    assert sorted(seen - pins.keys()) == []


def requirements_of(name: str) -> list[str]:
    """Return the requirements of a package; none of a tool that `make lint` has not installed."""
    try:
        return requires(name) or []
    except PackageNotFoundError:
        assert name in {canonicalize_name(tool.name) for tool in TOOLS}
        return []


def test_no_test_is_skipped_if_a_dev_requirement_is_missing() -> None:
    dev = {requirement.name.replace("-", "_") for requirement in DEV}
    for path in (ROOT / "tests").rglob("*.py"):
        optional = re.findall(r'importorskip\("(\w+)', path.read_text(encoding="utf-8"))
        assert not dev & set(optional), path


def test_all_has_every_extra() -> None:
    [requirement] = map(Requirement, EXTRAS["all"])
    assert requirement.name == PROJECT["project"]["name"]
    assert requirement.extras == EXTRAS.keys() - NOT_IN_ALL


@pytest.mark.parametrize("extra", ["all", *sorted(EXTRAS.keys() - NOT_IN_ALL)])
def test_readme_lists_every_extra(extra: str) -> None:
    assert f'| `pip install "elmore[{extra}]"` |' in README
