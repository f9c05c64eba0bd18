"""Model packages: the models that `elmore.load` finds by name.

A package declares an entry point in the group `elmore.models`. The name of the entry point is the
name of the model; its value is a Python package whose folder is a checkpoint directory.
"""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import elmore
from elmore.bilm.model import BiLM
from elmore.checkpoint.build import on_meta_device
from elmore.checkpoint.directory import CONFIG, read_bilm_config, read_tokenization
from elmore.checkpoint.locate import MODELS, package_folders
from elmore.errors import InputError


class ModelPackage(NamedTuple):
    """A model and the distribution that provides it."""

    name: str
    module: str
    distribution: str
    version: str

    @property
    def folder(self) -> Path:
        """The checkpoint directory. Raises `InputError` if the package is broken."""
        folders, reason = package_folders(self.module)
        for folder in folders:
            if (folder / CONFIG).is_file():
                return folder
            reason = f"{folder} has no {CONFIG}"
        raise InputError(
            f"the package {self} of the model {self.name} is broken: {reason}. Reinstall or "
            f"uninstall {self.distribution}."
        )

    def describe(self) -> dict[str, Any]:
        """Return facts about the model, without reading its weights, or the error if it is broken.

        The keys are name, package, version, path, language (None if unknown), parameters and bytes;
        or name, package, version and error.
        """
        facts = {"name": self.name, "package": self.distribution, "version": self.version}
        try:
            folder = self.folder
            tokenization = read_tokenization(folder)
            with on_meta_device():
                bilm = BiLM(read_bilm_config(folder))
        except InputError as error:
            return {**facts, "error": str(error)}
        return {
            **facts,
            "path": str(folder),
            "language": tokenization and tokenization.language,
            "parameters": sum(p.numel() for p in bilm.parameters()),
            "bytes": sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
        }

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


# Not an entry point of elmore: it works in a source tree without metadata, takes no search, and no
# other package can replace the default model.
INCLUDED = ModelPackage("en", "elmore.models.en", "elmore", elmore.__version__)
"""The English model inside elmore's own package."""


def model_packages() -> list[ModelPackage]:
    """Return the installed models, the included one first; a package may be broken."""
    packages = [
        ModelPackage(point.name, point.value, point.dist.name, point.dist.version)
        for point in entry_points(group=MODELS)
        if point.name != INCLUDED.name and point.dist is not None
    ]
    return [INCLUDED, *sorted(packages)]


def find_package(name: str) -> ModelPackage | None:
    """Return the package that provides the model of a name; None if there is none.

    Raises:
        InputError: If several packages do.
    """
    if name == INCLUDED.name:
        return INCLUDED
    packages = [package for package in model_packages() if package.name == name]
    if len(packages) > 1:
        raise InputError(
            f"several packages provide a model {name}: {', '.join(map(str, packages))}. Uninstall "
            "all but one, or pass the path of the model"
        )
    return packages[0] if packages else None
