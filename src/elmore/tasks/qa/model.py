"""BiDAF with self-attention for question answering (Clark and Gardner, 2018).

B examples, T words of a passage, U words of a question, S spans of a gold answer, L words of the
longest predicted answer, D dim.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.tasks.modules.dropout import VariationalDropout
from elmore.tasks.modules.rnn import BiGRU
from elmore.tasks.qa.attention import BiAttention, SelfAttention
from elmore.tasks.qa.config import ReaderConfig
from elmore.tasks.qa.tokens import Tokens
from elmore.tasks.spans import Span
from elmore.tasks.task import TaskModel
from elmore.tasks.words import WordBatch, Words


class Answer(NamedTuple):
    """A predicted answer: a part of a passage."""

    text: str
    start: int
    """Character offset of its start in the passage."""

    end: int
    """Character offset after its end."""

    probability: float
    """p(start) * p(end)."""


class QaBatch(NamedTuple):
    """Questions, passages and gold answers."""

    question: WordBatch
    passage: WordBatch
    spans: Int[Tensor, "2 B S"]
    """First and last word of each gold answer, padded with -1."""

    texts: Sequence[Tokens]
    """The passages, from which the text of an answer is taken."""


class Reader(TaskModel[QaBatch, Answer]):
    """[word; characters; ELMo] -> biGRU -> [h; ELMo] -> attention -> self-attention -> bounds."""

    def __init__(self, config: ReaderConfig, words: Words) -> None:
        super().__init__()
        H = config.hidden
        self.words = words
        self.max_answer = config.max_answer
        self.dropout = VariationalDropout(config.dropout)
        self.read = BiGRU(words.in_dim, H)
        self.ask = BiAttention(self.read.dim + words.out_dim)
        self.merge_asked = nn.Linear(self.ask.dim, 2 * H)
        self.reread = BiGRU(2 * H, H)
        self.look_around = SelfAttention(self.reread.dim)
        self.merge_seen = nn.Linear(self.look_around.dim, 2 * H)
        self.find_start = BiGRU(2 * H, H)
        self.find_end = BiGRU(2 * H + self.find_start.dim, H)
        self.score_start = nn.Linear(self.find_start.dim, 1)
        self.score_end = nn.Linear(self.find_end.dim, 1)

    def forward(self, batch: QaBatch) -> Float[Tensor, ""]:
        """Return -log p of the gold answer, averaged over questions.

        p is the sum of p(start) * p(end) over all gold spans.
        """
        # Deviation: Clark and Gardner sum p(start) and p(end) separately, which rewards the start
        # of one span combined with the end of another.
        first, last = batch.spans.clamp(min=0)
        start, end = self._log_p(batch)
        log_p = start.gather(1, first) + end.gather(1, last)  # (B, S)
        return -log_p.masked_fill(batch.spans[0] < 0, -torch.inf).logsumexp(dim=1).mean()

    def predict(self, batch: QaBatch) -> list[Answer]:
        """Return the most probable answer to each question."""
        first, last, log_p = best_spans(*self._log_p(batch), self.max_answer)
        spans = map(Span, first.tolist(), (last + 1).tolist())
        return [
            Answer(text.text_of(span), *text.offsets(span), min(p, 1.0))
            for text, span, p in zip(batch.texts, spans, log_p.exp().tolist(), strict=True)
        ]

    def _log_p(self, batch: QaBatch) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Return log p(start) and log p(end) of each word of the passage."""
        mask, lengths = batch.passage.mask, batch.passage.lengths
        question, passage = self._encode(batch.question), self._encode(batch.passage)
        x = self.ask(passage, question, mask, batch.question.mask)
        x = self.merge_asked(x).relu()  # (B, T, 2H)
        h = self.dropout(self.reread(self.dropout(x), lengths))
        x = self.dropout(x + self.merge_seen(self.look_around(h, mask)).relu())
        start = self.find_start(x, lengths)
        end = self.find_end(self.dropout(torch.cat([x, start], dim=-1)), lengths)
        return _normalize(self.score_start(start), mask), _normalize(self.score_end(end), mask)

    def _encode(self, words: WordBatch) -> Float[Tensor, "B U D"]:
        """Encode words with the GRU that questions and passages share."""
        at_input, at_output = self.words(words)
        h = self.read(self.dropout(at_input), words.lengths)
        return self.dropout(torch.cat([h, at_output], dim=-1))


def _normalize(scores: Float[Tensor, "B T 1"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    return scores[..., 0].masked_fill(~mask, -torch.inf).log_softmax(dim=-1)


def best_spans(
    start: Float[Tensor, "B T"], end: Float[Tensor, "B T"], max_length: int
) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"], Float[Tensor, " B"]]:
    """Find the span of each passage with the highest p(start) * p(end).

    Args:
        start: log p(start).
        end: log p(end).
        max_length: Maximum number of words in a span (L).

    Returns:
        First word, last word and log p of the spans.
    """
    # Row i holds the possible ends of a span that starts at word i: words i, ..., i + L - 1.
    ends = functional.pad(end, (0, max_length - 1), value=-torch.inf).unfold(1, max_length, 1)
    log_p, best = (start[..., None] + ends).flatten(1).max(dim=1)  # over (B, T, L)
    first = best // max_length
    return first, first + best % max_length, log_p
