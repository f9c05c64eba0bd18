"""options.json of the released models to a configuration, and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmore.bilm.config import BiLMConfig
from elmore.errors import InputError
from elmore.text.characters import NUM_CHARACTERS

OPTIONS = "options.json"
_DROPOUT = 0.1
"""The dropout of options that have none, such as those of released models."""


def config_from_options(
    options: Mapping[str, Any], path: Path, file: Mapping[str, Any], cell: str
) -> BiLMConfig:
    """Convert options.json to a configuration; unknown keys are ignored.

    Whether the model has projections is not in the options, so it is read from the weights.

    Raises:
        InputError: If these are not the options of a bidirectional ELMo model.
    """
    if not isinstance(options.get("lstm"), dict):
        raise InputError(f"{path} has no section 'lstm'; expected ELMo's options.json")
    if options.get("bidirectional") is False:
        raise InputError(f"{path} describes a forward language model; expected a bidirectional one")
    lstm, cnn = options["lstm"], options.get("char_cnn")
    token_encoder: dict[str, Any]
    try:
        if cnn is not None and ("char_embed" in file or "embedding" not in file):
            token_encoder = {
                "max_characters": int(cnn.get("max_characters_per_token", 50)),
                "char_dim": int(cnn["embedding"]["dim"]),
                "filters": tuple((int(width), int(count)) for width, count in cnn["filters"]),
                "activation": cnn.get("activation", "relu"),
                "num_highways": int(cnn.get("n_highway") or 0),
                "project_filters": "CNN_proj/W_proj" in file,
            }
        elif "embedding" in file:
            token_encoder = {"vocab_size": len(file["embedding"])}
        else:
            raise InputError(
                "no section 'char_cnn', as in a word-input model, but the weights have no dataset "
                "'embedding'. Do the two files belong together?"
            )
        return BiLMConfig(
            **token_encoder,
            dim=int(lstm["projection_dim"]),
            cell_dim=int(lstm["dim"]),
            project_cells=f"RNN_0/RNN/{cell.format(0)}/W_P_0" in file,
            num_layers=int(lstm.get("n_layers", 1)),
            # False is the default of the released training code.
            residual=bool(lstm.get("use_skip_connections", False)),
            # Both 0 and null disable clipping in the released code.
            cell_clip=float(lstm.get("cell_clip") or 0) or None,
            projection_clip=float(lstm.get("proj_clip") or 0) or None,
            dropout=float(options.get("dropout", _DROPOUT)),
        )
    except KeyError as error:
        raise InputError(f"{path}: the key {error} is missing; expected ELMo options") from error
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def options_from_config(config: BiLMConfig) -> dict[str, Any]:
    """Convert a configuration to released options, as used for inference."""
    options: dict[str, Any] = {
        "lstm": {
            "dim": config.cell_dim,
            "projection_dim": config.dim,
            "n_layers": config.num_layers,
            "cell_clip": config.cell_clip,
            "proj_clip": config.projection_clip if config.project_cells else None,
            "use_skip_connections": config.residual,
        }
    }
    if config.vocab_size is None:
        options["char_cnn"] = {
            "embedding": {"dim": config.char_dim},
            "filters": [list(pair) for pair in config.filters],
            "n_highway": config.num_highways,
            "n_characters": NUM_CHARACTERS,
            "max_characters_per_token": config.max_characters,
            "activation": config.activation,
        }
    else:
        options["n_tokens_vocab"] = config.vocab_size
    if config.dropout != _DROPOUT:
        options["dropout"] = config.dropout
    return options
