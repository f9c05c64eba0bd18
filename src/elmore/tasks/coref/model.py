"""End-to-end coreference resolution by span ranking (Lee et al., 2017).

N words of a document, I and E dim of a word before and after the biLSTM, W words of the longest
span, S candidate spans, G dim of a span, K spans after pruning, A antecedents per span, C = A + 1
choices (an antecedent or none), F dim of features, H hidden size, M mentions.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.tasks.coref.config import RankerConfig
from elmore.tasks.coref.data import PredictedCluster
from elmore.tasks.coref.ranking import (
    Spans,
    antecedent_loss,
    build_clusters,
    candidate_spans,
    cluster_ids,
    positions_before,
    prune_spans,
    rows_before,
    word_rows,
)
from elmore.tasks.modules.rnn import BiLSTM
from elmore.tasks.spans import Span
from elmore.tasks.task import TaskModel
from elmore.tasks.words import WordBatch, Words
from elmore.transfer import to_device

_FARTHEST = (1, 2, 3, 4, 7, 15, 31, 63)
"""Upper bounds of the distance buckets 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63; the last is 64+."""

_PAIRS = 1 << 17
"""Pairs scored at once. A pair takes about 20 kB, so long documents need a limit."""


class DocumentBatch(NamedTuple):
    """The parts of a document that are not in its `WordBatch`."""

    sentences: slice
    """The rows of the batch that hold its sentences."""

    genre: Int[Tensor, ""]
    speakers: Int[Tensor, " N"]
    mentions: Int[Tensor, "M 3"]
    """Start, end and cluster, counted from 1, of each gold mention; on the CPU."""


class CorefBatch(NamedTuple):
    """The sentences of all documents, and the documents they belong to."""

    words: WordBatch
    documents: list[DocumentBatch]


class Ranking(NamedTuple):
    """The spans of a document after pruning, in document order, and their antecedent scores."""

    spans: Spans
    """On the CPU."""

    scores: Float[Tensor, "K C"]
    """Column a scores the a-th preceding span as the antecedent; column 0 means none."""


class CorefRanker(TaskModel[CorefBatch, list[PredictedCluster]]):
    """[word; characters; ELMo] -> biLSTM -> spans -> pruning -> antecedent scores."""

    def __init__(self, config: RankerConfig, words: Words, num_genres: int) -> None:
        super().__init__()
        self.config = config
        self.words = words
        self.rnn = BiLSTM(words.in_dim, config.hidden)
        self.dropout = nn.Dropout(config.rnn_dropout)
        ffnn = FeedForward(config.ffnn_hidden, config.ffnn_layers, config.dropout)
        self.encode = SpanEncoder(
            words.in_dim,
            self.rnn.dim + words.out_dim,
            ffnn,
            max_width=config.max_width,
            width_dim=config.feature_dim,
        )
        self.mention_score = ffnn.build(self.encode.dim)
        self.pair_score = PairScorer(
            self.encode.dim,
            ffnn,
            feature_dim=config.feature_dim,
            num_genres=num_genres,
            max_antecedents=config.max_antecedents,
        )

    def forward(self, batch: CorefBatch) -> Float[Tensor, ""]:
        """Return -log p of the gold antecedents, summed over spans and averaged over documents."""
        rankings = self._rank(batch)
        losses = [
            antecedent_loss(
                ranking.scores,
                to_device(cluster_ids(ranking.spans, document.mentions), ranking.scores.device),
            )
            for ranking, document in zip(rankings, batch.documents, strict=True)
        ]
        return torch.stack(losses).mean()

    def predict(self, batch: CorefBatch) -> list[list[PredictedCluster]]:
        """Return the clusters of each document, without singletons."""
        predictions = []
        for spans, scores in self._rank(batch):
            distances = scores.argmax(dim=1)
            probabilities = scores.softmax(dim=1).gather(1, distances[:, None])[:, 0]
            mentions = map(Span, spans.start.tolist(), spans.end.tolist())
            predictions.append(
                build_clusters(list(mentions), distances.tolist(), probabilities.tolist())
            )
        return predictions

    def _rank(self, batch: CorefBatch) -> list[Ranking]:
        x, at_output = self.words(batch.words)
        h = torch.cat([self.dropout(self.rnn(x, batch.words.lengths)), at_output], dim=-1)
        return [
            self._rank_document(
                x[document.sentences],
                h[document.sentences],
                batch.words.lengths[document.sentences],
                document,
            )
            for document in batch.documents
        ]

    def _rank_document(
        self,
        x: Float[Tensor, "B T I"],
        h: Float[Tensor, "B T E"],
        lengths: Int[Tensor, " B"],
        document: DocumentBatch,
    ) -> Ranking:
        words = to_device(word_rows(lengths, x.shape[1]), x.device)
        x, h = x.flatten(0, 1)[words], h.flatten(0, 1)[words]  # (N, I) and (N, E)
        candidates = candidate_spans(lengths, self.config.max_width)
        g = self.encode(x, h, candidates.to(x.device))  # (S, G)
        mention_scores = self.mention_score(g)[:, 0]
        # The only place where the CPU waits for the GPU: pruning is sequential.
        kept = prune_spans(
            mention_scores.detach().cpu(),
            candidates,
            max(1, int(self.config.spans_per_word * len(words))),
        )
        rows = to_device(kept, x.device)
        spans = candidates.take(kept)
        scores = self.pair_score(
            g[rows],
            mention_scores[rows],
            document.genre,
            document.speakers[to_device(spans.start, x.device)],
        )
        return Ranking(spans, scores)


class FeedForward(NamedTuple):
    """The shape of a feed-forward network: ReLU hidden layers with dropout, and one output."""

    hidden: int
    num_layers: int
    dropout: float

    def build(self, in_dim: int) -> nn.Sequential:
        """Return a network with `in_dim` inputs."""
        first = nn.Linear(in_dim, self.hidden)
        return nn.Sequential(first, *self.build_after_first())

    def build_after_first(self) -> nn.Sequential:
        """Return the network without its first linear layer."""
        layers: list[nn.Module] = [nn.ReLU(), nn.Dropout(self.dropout)]
        for _ in range(1, self.num_layers):
            layers += [nn.Linear(self.hidden, self.hidden), nn.ReLU(), nn.Dropout(self.dropout)]
        return nn.Sequential(*layers, nn.Linear(self.hidden, 1))


class SpanEncoder(nn.Module):
    """[first word; last word; head; width]: the span representation of Lee et al.

    First and last word are outputs of the biLSTM. The head is an attention-weighted sum of the
    inputs of the biLSTM.
    """

    def __init__(
        self, in_dim: int, out_dim: int, ffnn: FeedForward, *, max_width: int, width_dim: int
    ) -> None:
        super().__init__()
        self.max_width = max_width
        self.attend = ffnn.build(out_dim)
        self.width = nn.Embedding(max_width, width_dim)
        self.dropout = nn.Dropout(ffnn.dropout)
        self.dim = 2 * out_dim + in_dim + width_dim

    def forward(
        self, x: Float[Tensor, "N I"], h: Float[Tensor, "N E"], spans: Spans
    ) -> Float[Tensor, "S G"]:
        """Encode all spans of a document."""
        widths = spans.end - spans.start - 1
        heads = self.heads(x, self.attend(h)[:, 0])[spans.start, widths]
        width = self.dropout(self.width(widths))
        return torch.cat([h[spans.start], h[spans.end - 1], heads, width], dim=-1)

    def heads(self, x: Float[Tensor, "N I"], score: Float[Tensor, " N"]) -> Float[Tensor, "N W I"]:
        """Return the heads of all spans, by first word and width - 1.

        All spans with the same first word share a window of W words. That takes W times less
        memory than gathering the words of each span. Entries of spans that extend beyond the end
        of the document are meaningless.
        """
        N, W = len(x), self.max_width
        offsets = torch.arange(W, device=x.device)
        window = (torch.arange(N, device=x.device)[:, None] + offsets).clamp(max=N - 1)  # (N, W)
        inside = offsets <= offsets[:, None]  # a span of width w + 1 has the offsets 0, ..., w
        scores = score[window][:, None].masked_fill(~inside, -torch.inf)  # (N, W, W)
        return scores.softmax(dim=-1) @ x[window]


class PairScorer(nn.Module):
    """Scores of span j as the antecedent of span i: s(i, j) = s_m(i) + s_m(j) + s_a(i, j)."""

    farthest: Tensor

    def __init__(
        self,
        dim: int,
        ffnn: FeedForward,
        *,
        feature_dim: int,
        num_genres: int,
        max_antecedents: int,
    ) -> None:
        super().__init__()
        self.max_antecedents = max_antecedents
        self.distance = nn.Embedding(len(_FARTHEST) + 1, feature_dim)
        # Genre 0 is an unknown genre; its embedding is zero, like that of a dropped feature.
        self.genre = nn.Embedding(num_genres + 1, feature_dim, padding_idx=0)
        self.speaker = nn.Embedding(2, feature_dim)
        self.dropout = nn.Dropout(ffnn.dropout)
        self.first = nn.Linear(3 * dim + 3 * feature_dim, ffnn.hidden)
        self.rest = ffnn.build_after_first()
        self.register_buffer("farthest", torch.tensor(_FARTHEST), persistent=False)

    def forward(
        self,
        g: Float[Tensor, "K G"],
        mention_score: Float[Tensor, " K"],
        genre: Int[Tensor, ""],
        speaker: Int[Tensor, " K"],
    ) -> Float[Tensor, "K C"]:
        """Return the scores of "no antecedent", which are 0, and of the A preceding spans.

        Args:
            g: Span representations.
            mention_score: s_m.
            genre: Genre of the document.
            speaker: Speaker of each span.

        Returns:
            Column 0 is "no antecedent", column a the a-th preceding span.
        """
        K, A = len(g), min(self.max_antecedents, len(g) - 1)
        distance = torch.arange(A, 0, -1, device=g.device)
        same_speaker = speaker[:, None] == rows_before(speaker, A)
        features = self._features(distance, genre, same_speaker)
        _, v, _, _ = self._weights()
        antecedent_terms = rows_before(functional.linear(g, v), A)
        size = max(1, _PAIRS // max(A, 1))
        chunks = (x.split(size) for x in (g, rows_before(g, A), antecedent_terms, features))
        pairs = torch.cat([self._pairs(*chunk) for chunk in zip(*chunks, strict=True)])
        scores = pairs + mention_score[:, None] + rows_before(mention_score, A)
        exists = positions_before(K, A, g.device) >= 0
        return functional.pad(scores.flip(1).masked_fill(~exists, -torch.inf), (1, 0))

    def _weights(self) -> tuple[Tensor, ...]:
        """Split the weights of the first layer: g_i, g_j, their product, and the features."""
        F = 3 * self.distance.embedding_dim
        G = (self.first.in_features - F) // 3
        return self.first.weight.split([G, G, G, F], dim=1)

    def _features(
        self, distance: Int[Tensor, " A"], genre: Int[Tensor, ""], same: Bool[Tensor, "K A"]
    ) -> Float[Tensor, "K A F"]:
        shape = (*same.shape, -1)
        parts = [
            self.distance(torch.bucketize(distance, self.farthest)).expand(shape),
            self.genre(genre).expand(shape),
            self.speaker(same.long()),
        ]
        return self.dropout(torch.cat(parts, dim=-1))

    def _pairs(
        self,
        g: Float[Tensor, "k G"],
        before: Float[Tensor, "k A G"],
        antecedent_terms: Float[Tensor, "k A H"],
        features: Float[Tensor, "k A F"],
    ) -> Float[Tensor, "k A"]:
        """Return s_a(i, j) = FFNN([g_i; g_j; g_i * g_j; features])."""
        # The first layer is split, so that the terms of g_i and of g_j (antecedent_terms) are
        # computed once per span, not once per pair. That takes a third of the time and memory.
        u, _, w, f = self._weights()
        x = functional.linear(g[:, None] * before, w, self.first.bias)
        x = x + functional.linear(g, u)[:, None] + antecedent_terms
        x = x + functional.linear(features, f)
        return self.rest(x)[..., 0]
