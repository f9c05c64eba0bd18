"""`elmore perplexity`: evaluate a language model on text."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from elmore.cli.options import Json, Language, ReplaceInvalid, Tokenizer
from elmore.cli.show import show


def perplexity(
    model: Path,
    *files: Path,
    tokenizer: Tokenizer = None,
    language: Language = None,
    sentences: Literal["split", "lines"] | None = None,
    device: str = "auto",
    replace_invalid: ReplaceInvalid = False,
    json_output: Json = False,
) -> None:
    """Compute the perplexity of a language model on text, with the full softmax.

    Sentences are scored independently, so the result does not depend on their order.

    Example: `elmore perplexity runs/mine heldout.txt`

    Args:
        model: Directory written by `elmore pretrain` or `elmore finetune`.
        files: Text files.
        sentences: Split each line into sentences, or treat each line as one sentence. By default,
            tokenized text (the tokenizer whitespace) has one per line, and other text is split.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
    """
    from elmore.checkpoint.language_model import read_language_model
    from elmore.cli.pretrain import expand
    from elmore.device import find_device
    from elmore.pretrain.perplexity import measure_perplexity
    from elmore.progress import with_progress
    from elmore.text.corpus import TextConfig, read_sentences

    paths = expand(files)
    saved = read_language_model(model)
    config = TextConfig(
        tokenizer=tokenizer, language=language, replace_invalid=replace_invalid
    ).for_model(saved.tokenization)
    if sentences is None:
        sentences = "lines" if config.tokenizer == "whitespace" else "split"
    config = replace(config, sentences=sentences)
    text = (words for path in paths for words in read_sentences(path, config))
    result = measure_perplexity(
        saved.model.to(find_device(device)),
        saved.vocabulary,
        with_progress(text, "sentences scored"),
    )
    show({"average": result.average, **result._asdict()}, str(result), as_json=json_output)
