"""Questions and passages to answers: BiDAF with self-attention (Clark and Gardner, 2018).

B examples, T words of a passage, U of a question, S places of an answer, L words of the longest,
D dim.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.tasks.modules.dropout import WordDropout
from elmore.tasks.modules.rnn import BiGRU
from elmore.tasks.qa.attention import BiAttention, SelfAttention
from elmore.tasks.qa.config import ReaderConfig
from elmore.tasks.qa.tokens import Tokens
from elmore.tasks.task import TaskModel
from elmore.tasks.words import WordBatch, Words


class Answer(NamedTuple):
    """A part of a passage."""

    text: str
    start: int
    """Its first character in the passage."""

    end: int
    """The character after its last."""

    probability: float
    """Of its start times that of its end."""


class QaBatch(NamedTuple):
    """Questions, passages, and where the answers are."""

    question: WordBatch
    passage: WordBatch
    spans: Int[Tensor, "2 B S"]
    """First and last word of each place; -1 where there are no more of them."""

    texts: Sequence[Tokens]
    """The passages, which answers are cut from."""


class Reader(TaskModel[QaBatch, Answer]):
    """[word; characters; ELMo] -> biGRU -> [h; ELMo] -> attention -> self-attention -> bounds."""

    def __init__(self, config: ReaderConfig, words: Words) -> None:
        super().__init__()
        H = config.hidden
        self.words = words
        self.max_answer = config.max_answer
        self.dropout = WordDropout(config.dropout)
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
        """Return -log p of the answer to an average question.

        p is the sum of p(start) * p(end) over all places of it.
        """
        # Deviation: Clark and Gardner add up p(start) and p(end) on their own, and then the start
        # of one place and the end of another make a perfect answer.
        first, last = batch.spans.clamp(min=0)
        start, end = self._log_p(batch)
        places = start.gather(1, first) + end.gather(1, last)  # (B, S)
        return -places.masked_fill(batch.spans[0] < 0, -torch.inf).logsumexp(dim=1).mean()

    def predict(self, batch: QaBatch) -> list[Answer]:
        """Return the most probable answer to each question."""
        best = best_spans(*self._log_p(batch), self.max_answer)
        first, last = best.spans.tolist()
        found = zip(batch.texts, first, last, best.log_p.exp().tolist(), strict=True)
        return [
            Answer(text.slice(i, j + 1), *text.place(i, j + 1), min(p, 1.0))
            for text, i, j, p in found
        ]

    def _log_p(self, batch: QaBatch) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Return log p of each word of the passage as the first, and as the last, of the answer."""
        mask, lengths = batch.passage.mask, batch.passage.lengths
        question, passage = self._encode(batch.question), self._encode(batch.passage)
        asked = self.ask(passage, question, mask, batch.question.mask)
        x = self.merge_asked(asked).relu()  # (B, T, 2H)
        h = self.dropout(self.reread(self.dropout(x), lengths))
        x = self.dropout(x + self.merge_seen(self.look_around(h, mask)).relu())
        start = self.find_start(x, lengths)
        end = self.find_end(self.dropout(torch.cat([x, start], dim=-1)), lengths)
        return _normalize(self.score_start(start), mask), _normalize(self.score_end(end), mask)

    def _encode(self, words: WordBatch) -> Float[Tensor, "B U D"]:
        """Return words in context, with one GRU for questions and passages."""
        at_input, at_output = self.words(words)
        h = self.read(self.dropout(at_input), words.lengths)
        return self.dropout(torch.cat([h, at_output], dim=-1))


def _normalize(scores: Float[Tensor, "B T 1"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    return scores[..., 0].masked_fill(~mask, -torch.inf).log_softmax(dim=-1)


class BestSpans(NamedTuple):
    """The most probable span of each passage."""

    spans: Int[Tensor, "2 B"]
    """First and last word."""

    log_p: Float[Tensor, " B"]


def best_spans(
    start: Float[Tensor, "B T"], end: Float[Tensor, "B T"], max_length: int
) -> BestSpans:
    """Return the spans of at most so many words with the highest p(start) * p(end)."""
    # Row i holds the ends that a span from i may have: words i, ..., i + L - 1.
    ends = functional.pad(end, (0, max_length - 1), value=-torch.inf).unfold(1, max_length, 1)
    log_p, best = (start[..., None] + ends).flatten(1).max(dim=1)  # over (B, T, L)
    first = best // max_length
    return BestSpans(torch.stack([first, first + best % max_length]), log_p)
