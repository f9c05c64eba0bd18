"""`elmore info`: describe a model or the installation."""

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
    """Show the configuration, size, provenance and model card of a model.

    Without a model, show the versions of elmore, Python and PyTorch, and the GPUs.

    Example: `elmore info weights.hdf5 options.json`

    Args:
        model: A directory, HDF5 weights, an archive of either, or en, the included English model.
        options: options.json of HDF5 weights; by default the one next to them.
    """
    facts = _describe_installation() if model is None else _describe_model(model, options, vocab)
    if json_output:
        print(json.dumps(facts))
        return
    lines = list(_flatten(facts))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name.replace('_', ' '):{width}}  {value}")
    if model is not None and (card := _read_card(model)):
        print(f"\n{card}")


def _describe_installation() -> dict[str, Any]:
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


def _describe_model(model: Path, options: Path | None, vocab: Path | None) -> dict[str, Any]:
    from dataclasses import asdict

    from elmore.checkpoint.pretrained import read_pretrained

    saved = read_pretrained(model, options=options, vocab=vocab)
    config = saved.bilm.config
    return {
        "model": str(model),
        "parameters": sum(p.numel() for p in saved.bilm.parameters()),
        "vectors": f"{config.num_layers + 1} layers of {2 * config.dim} dimensions per word",
        **asdict(config),
        "weights_hash": saved.weights_hash,
        **({"text": asdict(saved.tokenization)} if saved.tokenization else {}),
        "provenance": saved.provenance,
    }


def _read_card(model: Path) -> str | None:
    """Return the model card, if there is one."""
    from elmore.checkpoint.pretrained import CARD, find_model

    path = find_model(model) / CARD
    return path.read_text(encoding="utf-8").strip() if path.is_file() else None


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
