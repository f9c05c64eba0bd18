"""`elmore info`: what a model is, or what this installation is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmore.cli.options import Json, Vocab


def info(
    model: Path | None = None,
    options: Path | None = None,
    *,
    vocab: Vocab = None,
    json_output: Json = False,
) -> None:
    """Show the sizes, parameters and origin of a model; without one, the installation.

    Example: `elmore info weights.hdf5 options.json`

    Args:
        model: HDF5 weights, a folder, or an archive of either.
        options: options.json of HDF5 weights, if it is not beside them.
    """
    facts = _installation() if model is None else _model(model, options, vocab)
    if json_output:
        print(json.dumps(facts))
        return
    lines = list(_lines(facts))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name.replace('_', ' '):{width}}  {value}")


def _installation() -> dict[str, Any]:
    import platform

    import torch

    import elmore

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "elmore": elmore.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpus": gpus or "none",
    }


def _model(model: Path, options: Path | None, vocab: Path | None) -> dict[str, Any]:
    from dataclasses import asdict

    from elmore.checkpoint.pretrained import read_pretrained

    bilm, _, provenance, _ = read_pretrained(model, options=options, vocab=vocab)
    config = bilm.config
    return {
        "model": str(model),
        "parameters": sum(p.numel() for p in bilm.parameters()),
        "vectors": f"{config.num_layers + 1} layers of {2 * config.dim} dimensions a word",
        **asdict(config),
        "provenance": provenance,
    }


def _lines(facts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values; what is nested is named by its path."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{prefix}{name}: ")
        else:
            yield f"{prefix}{name}", _readable(value)


def _readable(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    return str(value)
