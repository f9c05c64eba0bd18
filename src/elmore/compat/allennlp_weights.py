"""AllenNLP's names for the weights of a biLM, to read the state dicts of its models.

Tensors have the same layout in both, except in the highway layers.
"""

from collections.abc import Iterator

from torch import Tensor

from elmore.bilm.config import BiLMConfig

THEIRS, OURS = "_elmo_lstm.", "bilm."
"""Prefixes of the weights in AllenNLP's `Elmo` and in ours."""
_CACHE = "_word_embedding.weight"  # token vectors of `vocab_to_cache`, computed from the weights


def rules(config: BiLMConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name of each parameter in AllenNLP, and those of its parts in `BiLM`."""
    yield "_token_embedder._char_embedding_weights", ("encode.embed.weight",)
    for kind in ("weight", "bias"):
        for n in range(len(config.filters)):
            yield f"_token_embedder.char_conv_{n}.{kind}", (f"encode.convs.{n}.{kind}",)
        for n in range(config.num_highways):
            ours = (f"encode.highways.{n}.{part}.{kind}" for part in ("transform", "gate"))
            yield f"_token_embedder._highways._layers.{n}.{kind}", tuple(ours)
        yield f"_token_embedder._projection.{kind}", (f"encode.project.{kind}",)
    for direction in ("forward", "backward"):
        for n in range(config.num_layers):
            theirs, lstm = f"_elmo_lstm.{direction}_layer_{n}", f"{direction}_lstms.{n}"
            yield f"{theirs}.input_linearity.weight", (f"{lstm}.input.weight",)
            yield f"{theirs}.state_linearity.weight", (f"{lstm}.recurrent.weight",)
            yield f"{theirs}.state_linearity.bias", (f"{lstm}.input.bias",)
            yield f"{theirs}.state_projection.weight", (f"{lstm}.project.weight",)


def rename(state: dict[str, Tensor], prefix: str, config: BiLMConfig) -> str | None:
    """Rename the weights of AllenNLP's biLM in a state dict, if there are any, to those of `BiLM`.

    Returns:
        None, or an error message if the weights do not fit a biLM of this size; the state dict then
        keeps them.
    """
    theirs, ours = prefix + THEIRS, prefix + OURS
    state.pop(theirs + _CACHE, None)
    names = {name.removeprefix(theirs) for name in state if name.startswith(theirs)}
    mapping = dict(rules(config))
    if names and (wrong := sorted(names ^ mapping.keys())):
        problem = "unexpected" if wrong[0] in names else "missing"
        return (
            f"{theirs}* are the weights of another biLM; {problem}: {theirs}{wrong[0]}. Create "
            "Elmo with the options of the model that the state dict is from."
        )
    for name in names:
        value, parts = state.pop(theirs + name), mapping[name]
        if len(parts) == 1:
            state[ours + parts[0]] = value
        else:
            transform, carry = value.chunk(2)
            # Their gate is the weight of the input, ours that of the transform, and
            # sigmoid(-x) = 1 - sigmoid(x).
            state |= zip((ours + part for part in parts), (transform, -carry), strict=True)
    return None
