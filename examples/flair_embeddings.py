"""ELMo in flair: `ElmoreEmbeddings` replaces flair's `ELMoEmbeddings`, which needs AllenNLP 0.9.

flair 0.15 needs transformers 4, so install it apart from elmore[hf] with transformers 5:

    pip install elmore flair==0.15.1
    python examples/flair_embeddings.py [MODEL]
"""

import sys
from typing import Any

import flair
import torch
from flair.data import Sentence
from flair.embeddings import TokenEmbeddings
from flair.embeddings.base import register_embeddings

import elmore

SENTENCES = [
    ["He", "sat", "by", "the", "bank", "."],
    ["The", "bank", "raised", "its", "rates", "."],
]
WORD = "bank"


@register_embeddings  # so that flair loads taggers that were saved with these embeddings
class ElmoreEmbeddings(TokenEmbeddings):
    """Vectors of a frozen biLM for the tokens of flair's sentences.

    Args:
        model: Any model that `elmore.load` takes: a name, a folder, an archive, HDF5 weights.
        options_file: options.json of `weight_file`.
        weight_file: HDF5 weights, instead of `model`.
        embedding_mode: `all` concatenates all layers; `top` and `average` are one layer wide.
    """

    def __init__(
        self,
        model: str = "en",
        options_file: str | None = None,
        weight_file: str | None = None,
        embedding_mode: str = "all",
    ) -> None:
        if embedding_mode not in ("all", "top", "average"):
            raise elmore.InputError(
                f"embedding_mode must be all, top or average, got {embedding_mode!r}"
            )
        super().__init__()
        self._params = {
            "model": model,
            "options_file": options_file,
            "weight_file": weight_file,
            "embedding_mode": embedding_mode,
        }
        self._elmo = elmore.load(weight_file or model, options=options_file, device=flair.device)
        self._mode = embedding_mode
        self.name = f"elmo-{weight_file or model}-{embedding_mode}"
        self.static_embeddings = True  # the vectors of a sentence never change
        self.eval()

    @property
    def embedding_length(self) -> int:
        """The width of a token's vector."""
        return self._elmo.dim * (self._elmo.num_layers if self._mode == "all" else 1)

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> list[Sentence]:
        words = [[token.text for token in sentence] for sentence in sentences]
        for sentence, vectors in zip(
            sentences, self._elmo.embed(words, layers=self._mode), strict=True
        ):
            if self._mode == "all":  # (J, W, D) -> (W, J * D)
                vectors = vectors.transpose(1, 0, 2).reshape(len(sentence), -1)
            for token, vector in zip(sentence, torch.from_numpy(vectors), strict=True):
                token.set_embedding(self.name, vector.to(flair.device))
        return sentences

    def to_params(self) -> dict[str, Any]:
        """Return the arguments, which flair saves with a tagger instead of the weights."""
        return dict(self._params)

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> "ElmoreEmbeddings":
        """Return the embeddings of a saved tagger."""
        return cls(**params)


def main(model: str = "en") -> None:
    """Embed a word in two sentences, and print the similarity of its vectors."""
    embeddings = ElmoreEmbeddings(model, embedding_mode="top")
    sentences = [Sentence(words) for words in SENTENCES]
    embeddings.embed(sentences)
    first, second = (
        token.get_embedding() for sentence in sentences for token in sentence if token.text == WORD
    )
    similarity = torch.cosine_similarity(first, second, dim=0).item()
    print(f"{embeddings.embedding_length} dimensions, cosine of {WORD!r}: {similarity:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
