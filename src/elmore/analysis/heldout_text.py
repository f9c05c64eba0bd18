"""Perplexity of a language model on a text file."""

from pathlib import Path

from elmore.analysis.results import Result
from elmore.checkpoint.language_model import SavedLanguageModel
from elmore.embedder import Embedder
from elmore.pretrain.perplexity import measure_perplexity
from elmore.progress import with_progress
from elmore.text.corpus import TextConfig, read_sentences


def measure_text(saved: SavedLanguageModel, embedder: Embedder, path: Path) -> Result:
    """Return the perplexity of raw text, one paragraph per line, with the full softmax.

    Args:
        saved: The language model, which is moved to the device of the embedder.
        embedder: Its tokenizer, language and device are used.
        path: Text file, optionally compressed.
    """
    config = TextConfig(tokenizer=embedder.tokenizer, language=embedder.language)
    result = measure_perplexity(
        saved.model.to(embedder.device),
        saved.vocabulary,
        with_progress(read_sentences(path, config), "sentences scored"),
    )
    perplexity = {
        "forward": result.forward,
        "backward": result.backward,
        "average": result.average,
    }
    return Result(
        {"perplexity": perplexity},
        {
            "tokens": result.tokens,
            "words outside the vocabulary, scored as `<UNK>`": f"{result.unknown:.2%}",
        },
    )
