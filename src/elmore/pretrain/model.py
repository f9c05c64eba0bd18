"""The initial model of a run."""

import torch

from elmore.bilm.language_model import LanguageModel
from elmore.bilm.model import BiLM
from elmore.bilm.softmax import Softmax
from elmore.pretrain.config import PretrainConfig
from elmore.text.corpus import Corpus
from elmore.text.vocabulary import Vocabulary


def new_model(
    config: PretrainConfig, corpus: Corpus, bilm: BiLM | None = None
) -> tuple[LanguageModel, Vocabulary]:
    """Return a language model with random weights and the vocabulary of a text.

    If `bilm` is given, only the softmax is new.
    """
    vocabulary = corpus.vocabulary(
        max_size=config.vocabulary.max_size, min_count=config.vocabulary.min_count
    )
    torch.manual_seed(config.training.seed)
    bilm = bilm or BiLM(config.bilm)
    softmax = Softmax(dim=bilm.config.dim, vocab_size=len(vocabulary))
    return LanguageModel(bilm, softmax), vocabulary
