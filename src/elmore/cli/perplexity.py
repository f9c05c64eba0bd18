"""`elmore perplexity`: how well a language model predicts text."""

import json
from pathlib import Path
from typing import Literal

from elmore.cli.options import Json, ReplaceInvalid


def perplexity(
    model: Path,
    *files: Path,
    tokenizer: Literal["moses", "whitespace", "spacy"] = "moses",
    language: str = "en",
    sentences: Literal["split", "lines"] = "split",
    device: str = "auto",
    replace_invalid: ReplaceInvalid = False,
    json_output: Json = False,
) -> None:
    """Measure the perplexity of a language model on text, with the full softmax.

    Every sentence is scored on its own, so the result does not depend on batches or order.

    Example: `elmore perplexity runs/mine heldout.txt`

    Args:
        model: Folder written by `elmore pretrain` or `elmore finetune`.
        files: Text files.
        tokenizer: How text becomes tokens; whitespace for text that is tokenized already.
        language: ISO 639-1 code, for the rules of the tokenizer.
        sentences: Split each line into sentences, or take lines as they are.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
    """
    from elmore.checkpoint.language_model import read_language_model
    from elmore.cli.pretrain import expand
    from elmore.cli.progress import with_progress
    from elmore.embedder import find_device
    from elmore.errors import InputError
    from elmore.pretrain.perplexity import measure_perplexity
    from elmore.text.corpus import TextConfig, sentences_of
    from elmore.text.lines import read_lines

    if not files:
        raise InputError("expected text files: elmore perplexity runs/mine heldout.txt")
    paths = expand(files)
    saved = read_language_model(model)
    config = TextConfig(tokenizer=tokenizer, language=language, sentences=sentences)
    text = (
        words
        for path in paths
        for words in sentences_of(read_lines(path, replace_invalid=replace_invalid), config)
    )
    found = measure_perplexity(
        saved.model.to(find_device(device)),
        saved.vocabulary,
        with_progress(text, "sentences scored"),
    )
    if json_output:
        print(json.dumps({"average": found.average, **found._asdict()}))
    else:
        print(found)
