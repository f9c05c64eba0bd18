"""Hugging Face transformers: `AutoModel`, `AutoTokenizer` and pipelines for elmore's directories.

    import elmore.integrations.huggingface
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("runs/my-elmo")
    model = AutoModel.from_pretrained("runs/my-elmo")
    output = model(**tokenizer(["He sat by the bank."], return_tensors="pt"))

Importing this module registers its classes with transformers.
"""

from elmore.errors import require

require("transformers", extra="hf")

from transformers import AutoConfig, AutoModel, AutoTokenizer  # noqa: E402

from elmore.integrations.huggingface.config import ElmoConfig  # noqa: E402
from elmore.integrations.huggingface.model import ElmoModel  # noqa: E402
from elmore.integrations.huggingface.tokenizer import ElmoTokenizer  # noqa: E402

__all__ = ["ElmoConfig", "ElmoModel", "ElmoTokenizer"]

AutoConfig.register(ElmoConfig.model_type, ElmoConfig, exist_ok=True)
AutoModel.register(ElmoConfig, ElmoModel, exist_ok=True)
AutoTokenizer.register(ElmoConfig, slow_tokenizer_class=ElmoTokenizer, exist_ok=True)
