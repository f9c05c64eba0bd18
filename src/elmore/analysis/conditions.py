"""The conditions of a measurement: what was measured, with what, on which data."""

import json
import shutil
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import torch

import elmore
from elmore.embedder import Embedder
from elmore.training.run_folder import hardware_name

_IDENTITY = ("weights_hash", "elmore", "precision", "tokenizer", "language", "data", "quick")


def describe_conditions(model: str, embedder: Embedder, data: dict[str, str]) -> dict[str, Any]:
    """Return the conditions of a measurement with a model on files with these checksums."""
    return {
        "model": model,
        "weights_hash": embedder.weights_hash,
        "elmore": elmore.__version__,
        "commit": source_commit(),
        "torch": torch.__version__,
        "precision": embedder.precision,
        "tokenizer": embedder.tokenizer,
        "language": embedder.language,
        "device": hardware_name(embedder.device),
        "data": data,
    }


def changed_conditions(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the names of conditions that differ, among those that may change the scores."""
    return [name for name in _IDENTITY if before.get(name) != now.get(name)]


@cache  # the source may change while a long evaluation runs, but not the code in memory
def source_commit() -> str | None:
    """Return the git commit of elmore's source; None if unknown.

    In a git repository, `-dirty` is added after changes. A package that pip has installed from a
    repository, by `pip install git+URL`, has the commit in its metadata.
    """
    return _commit_of_repository() or _commit_of_installation()


def _commit_of_repository() -> str | None:
    git, source = shutil.which("git"), Path(elmore.__file__)
    if git is None:
        return None
    for command in (
        # Fails if the package is installed, perhaps inside of another project's repository.
        ["ls-files", "--error-unmatch", source.name],
        ["describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"],
    ):
        result = subprocess.run(  # noqa: S603
            [git, "-C", str(source.parent), *command], capture_output=True, text=True, check=False
        )
        if result.returncode:
            return None
    return result.stdout.strip()


def _commit_of_installation() -> str | None:
    """Return the commit that pip recorded; see PEP 610."""
    try:
        installed = distribution("elmore")
    except PackageNotFoundError:
        return None
    source = Path(str(installed.locate_file("elmore/__init__.py")))
    if source.resolve() != Path(elmore.__file__).resolve():  # elmore is imported from elsewhere
        return None
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    return origin.get("vcs_info", {}).get("commit_id")
