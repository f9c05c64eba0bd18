"""`elmore info`: describe a model, or list what is installed."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore.cli.options import Json, Vocab

if TYPE_CHECKING:
    from elmore.checkpoint.locate import InstalledTask


def info(
    model: Path | None = None,
    options: Path | None = None,
    *,
    vocab: Vocab = None,
    json_output: Json = False,
) -> None:
    """Show the configuration, size, provenance and card of a model or an installed task.

    Without a model, list the installed models and tasks, the versions of elmore, Python and
    PyTorch, and the GPUs.

    Example: `elmore info weights.hdf5 options.json`

    Args:
        model: Name of an installed model or task, a directory, HDF5 weights, or an archive of
            either.
        options: options.json of HDF5 weights; by default the one next to them.
    """
    task = None if model is None or model.exists() else _find_task(str(model))
    if task is not None:
        facts = _describe_task(task)
    elif model is not None:
        facts = _describe_model(model, options, vocab)
    else:
        facts = _describe_installation()
    if json_output:
        print(json.dumps(facts))
        return
    models = facts.pop("models", [])
    lines = list(_flatten(facts))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name.replace('_', ' '):{width}}  {value}")
    if model is None:
        print()
        _print_models(models)
    elif card := _read_card(_find_folder(model) if task is None else task.folder.parent):
        print(f"\n{card}")


def _describe_installation() -> dict[str, Any]:
    import platform

    import torch

    import elmore
    from elmore.checkpoint.locate import installed_tasks
    from elmore.checkpoint.packages import model_packages

    tasks = [task.name for task in installed_tasks()]
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "elmore": elmore.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpus": gpus or "none",
        **({"tasks": tasks} if tasks else {}),
        "models": [package.describe() for package in model_packages()],
    }


def _describe_model(model: Path, options: Path | None, vocab: Path | None) -> dict[str, Any]:
    from dataclasses import asdict

    from elmore.checkpoint.packages import find_package
    from elmore.checkpoint.pretrained import find_model, read_pretrained

    saved = read_pretrained(model, options=options, vocab=vocab)
    config = saved.bilm.config
    package = None if model.exists() else find_package(str(model))
    return {
        "model": str(model),
        **({"package": str(package), "path": str(find_model(model))} if package else {}),
        "parameters": sum(p.numel() for p in saved.bilm.parameters()),
        "vectors": f"{config.num_layers + 1} layers of {2 * config.dim} dimensions per word",
        **asdict(config),
        "weights_hash": saved.weights_hash,
        **({"text": asdict(saved.tokenization)} if saved.tokenization else {}),
        "provenance": saved.provenance,
    }


def _find_task(name: str) -> "InstalledTask | None":
    from elmore.checkpoint.locate import installed_tasks

    return next((task for task in installed_tasks() if task.name == name), None)


def _describe_task(task: "InstalledTask") -> dict[str, Any]:
    from elmore.checkpoint.locate import TASK
    from elmore.schema import read_json

    facts = read_json(task.folder / TASK, "a trained task")
    names = ("scores", "train_examples", "epochs", "parameters", "bilm", "hash")
    return {
        "task": task.name,
        "package": task.distribution,
        "path": str(task.folder),
        "kind": facts["task"],
        **{name: facts[name] for name in names if name in facts},
    }


def _find_folder(model: Path) -> Path:
    from elmore.checkpoint.pretrained import find_model

    return find_model(model)


def _read_card(folder: Path) -> str | None:
    """Return the model card, if there is one."""
    from elmore.checkpoint.pretrained import CARD

    path = folder / CARD
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else None


def _print_models(models: Sequence[dict[str, Any]]) -> None:
    """Print a table of the installed models, then the errors of broken packages."""
    rows = [("model", "language", "parameters", "size", "package", "path")]
    for model in (model for model in models if "error" not in model):
        size, package = f"{model['bytes'] / 1e6:,.1f} MB", f"{model['package']} {model['version']}"
        language, parameters = model["language"] or "unknown", f"{model['parameters']:,}"
        rows.append((model["name"], language, parameters, size, package, model["path"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    for model in models:
        if "error" in model:
            print(f"{model['name']}: {model['error']}")


def _flatten(facts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and formatted values; the name of a nested value starts with its parents'."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}: ")
        else:
            yield f"{prefix}{name}", _format(value)


def _format(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    return str(value)
