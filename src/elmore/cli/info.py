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
    """Show the sizes, parameters, origin and card of a model; without one, the installation.

    Examples:
        elmore info weights.hdf5 options.json

        elmore info en

    Args:
        model: HDF5 weights, a folder, an archive of either, or a model that ships with elmore.
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
    if model is not None and (card := _card(model)):
        print(f"\n{card}")


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


def _card(model: Path) -> str | None:
    """Return what the makers of a model have to say about it."""
    from elmore.checkpoint.pretrained import CARD, find_model

    path = find_model(model) / CARD
    return path.read_text(encoding="utf-8").strip() if path.is_file() else None


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
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    return str(value)
