"""Model cards: README.md with the metadata that the Hugging Face Hub searches."""

from huggingface_hub import ModelCard

from elmore.integrations.huggingface.config import ElmoConfig

_METADATA = """\
---
library_name: elmore
---
"""
_CARD = """\
# ELMo

A bidirectional language model that gives a word a vector that depends on its sentence
([Peters et al., 2018](https://aclanthology.org/N18-1202/)): {layers} layers of {width} dimensions,
{parameters:,} parameters. It was made with elmore.

```python
import elmore

elmo = elmore.load("{name}")
vectors = elmo.embed(["He sat by the bank."])
```

With transformers:

```python
import elmore.integrations.huggingface
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModel.from_pretrained("{name}")
```
"""


def complete_card(card: str | None, config: ElmoConfig, parameters: int, name: str) -> str:
    """Return a model card with metadata.

    Args:
        card: The card of the model, whose metadata are kept; by default, a new one.
        config: The configuration of the model.
        parameters: The number of its parameters.
        name: What to load: a directory, or an id on the Hub.
    """
    layers, width = config.num_hidden_layers + 1, config.hidden_size
    text = card or _CARD.format(layers=layers, width=width, parameters=parameters, name=name)
    complete = ModelCard(text if text.startswith("---") else _METADATA + text)
    data = complete.data
    data.library_name = data.library_name or "elmore"
    data.pipeline_tag = data.pipeline_tag or "feature-extraction"
    data.tags = sorted({*(data.tags or []), "elmo"})
    if config.text:
        data.language = data.language or config.text["language"]
    return str(complete)
