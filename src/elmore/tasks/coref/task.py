"""The task of coreference resolution (section 4)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from elmore.errors import InputError
from elmore.tasks.coref.config import CorefConfig
from elmore.tasks.coref.data import (
    CorefExample,
    PredictedCluster,
    read_coreference,
    split_document,
)
from elmore.tasks.coref.metric import coref_scores
from elmore.tasks.coref.model import CorefBatch, CorefRanker, DocumentBatch
from elmore.tasks.show import mark_spans
from elmore.tasks.spans import LabeledSpan, spans_as_json
from elmore.tasks.task import Labels, Task
from elmore.tasks.treebank import treebank_tokens
from elmore.tasks.words import WordEncoder, Words
from elmore.text.sentences import Sentence
from elmore.text.split import split_sentences
from elmore.text.tokenize import Tokenizer
from elmore.transfer import to_device


class Coref(Task[CorefExample, CorefBatch, list[PredictedCluster]]):
    """Find the clusters of mentions in a document that refer to the same entity."""

    name = "coref"
    config = CorefConfig
    score_name = "average"

    def read(
        self, path: Path, config: CorefConfig, *, training: bool = False
    ) -> list[CorefExample]:
        """Read CoNLL-2012 columns; for training, split long documents."""
        documents = read_coreference(path)
        if not training:
            return documents
        limit = config.ranker.max_sentences
        return [part for document in documents for part in split_document(document, limit)]

    def texts(self, example: CorefExample) -> Sequence[Sentence]:
        """Return the sentences."""
        return example.sentences

    def labels(self, examples: Sequence[CorefExample]) -> Labels:
        """Return the genres."""
        if not any(example.clusters for example in examples):
            raise InputError(
                "no mentions in the training examples; expected coreference in the last column"
            )
        return {"genres": sorted({example.genre for example in examples} - {""})}

    def build(self, config: CorefConfig, words: Words, labels: Labels) -> CorefRanker:
        """Return the span-ranking model."""
        return CorefRanker(config.ranker, words, len(labels["genres"]))

    def collate(
        self, examples: Sequence[CorefExample], encode: WordEncoder, labels: Labels
    ) -> CorefBatch:
        """Encode the sentences, genres, speakers and mentions of all documents."""
        sentences: list[Sentence] = []
        documents = []
        genres = {genre: i for i, genre in enumerate(labels["genres"], 1)}
        for example in examples:
            start = len(sentences)
            sentences += filter(None, example.sentences)  # empty ones would need padding
            index = {speaker: i for i, speaker in enumerate(dict.fromkeys(example.speakers))}
            speakers = torch.tensor([index[speaker] for speaker in example.speakers])
            genre = torch.tensor(genres.get(example.genre, 0))
            documents.append(
                DocumentBatch(
                    slice(start, len(sentences)),
                    to_device(genre, encode.device),
                    to_device(speakers, encode.device),
                    torch.tensor(
                        [(*m, i) for i, c in enumerate(example.clusters, 1) for m in c],
                        dtype=torch.long,
                    ).view(-1, 3),
                )
            )
        return CorefBatch(encode(sentences), documents)

    def score(
        self, examples: Sequence[CorefExample], predictions: Sequence[list[PredictedCluster]]
    ) -> dict[str, float]:
        """Return MUC, B-cubed, CEAF-e and their average."""
        return coref_scores((example.clusters for example in examples), predictions)

    def gold_labels(self, example: CorefExample) -> list[str]:
        """Return `mention` for each mention: clusters have no labels."""
        return ["mention" for cluster in example.clusters for _ in cluster]

    def parse(self, line: str, tokenize: Tokenizer) -> CorefExample:
        """Parse a document on one line."""
        tokenized = (treebank_tokens(sentence, tokenize) for sentence in split_sentences(line))
        sentences = [tokens for tokens in tokenized if tokens]
        return CorefExample("", "", sentences, ["-"] * sum(map(len, sentences)), [], line)

    def show(self, example: CorefExample, prediction: list[PredictedCluster]) -> str:
        """Return one sentence per line, with each mention marked by the number of its cluster."""
        lines = []
        start = 0
        for tokens in example.sentences:
            spans = [
                LabeledSpan(str(number), mention.start - start, mention.end - start)
                for number, cluster in enumerate(prediction, 1)
                for mention in cluster
                if start <= mention.start < start + len(tokens)
            ]
            lines.append(mark_spans(tokens, spans))
            start += len(tokens)
        return "\n".join(lines)

    def as_json(
        self, example: CorefExample, prediction: list[PredictedCluster], config: CorefConfig
    ) -> dict[str, Any]:
        """Return text, sentences and clusters; positions count the words of the document."""
        words = [word for sentence in example.sentences for word in sentence]
        text = example.text or " ".join(words)
        return {
            "text": text,
            "sentences": example.sentences,
            "clusters": [spans_as_json(cluster, words, text) for cluster in prediction],
        }
