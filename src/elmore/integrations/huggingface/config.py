"""The config.json of elmore's directories, as a configuration of transformers."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from transformers import PretrainedConfig

from elmore.bilm.config import BiLMConfig
from elmore.checkpoint.directory import MODEL_TYPE


class ElmoConfig(PretrainedConfig):
    """The config.json of a directory written by elmore.

    Args:
        bilm: Fields of `BiLMConfig`; by default, the sizes of the paper.
        text: Fields of `Tokenization`: tokenizer and language of the training text, if known.
        layers: What `last_hidden_state` is: `average` of the layers, `top` or the index of a layer.
        kwargs: Other entries of config.json.
    """

    model_type = MODEL_TYPE

    def __init__(
        self,
        bilm: Mapping[str, Any] | None = None,
        text: Mapping[str, Any] | None = None,
        layers: Literal["average", "top"] | int = "average",
        **kwargs: Any,
    ) -> None:
        self.bilm = dict(bilm or asdict(BiLMConfig()))
        self.text = text
        self.layers = layers
        super().__init__(**kwargs)

    @property
    def hidden_size(self) -> int:
        """The width of a vector, both directions together."""
        return 2 * self.bilm["dim"]

    @property
    def num_hidden_layers(self) -> int:
        """The number of LSTM layers; `hidden_states` has one more."""
        return self.bilm["num_layers"]
