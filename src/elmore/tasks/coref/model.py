"""Documents to clusters: spans, ranked by how well each continues another (Lee et al., 2017).

N words of a document, E and I widths of a word after and before the biLSTM, W words of the widest
span; S spans, G their width; K spans that are kept, A antecedents of each, C choices: A and none;
F width of features, H of hidden layers, M mentions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

from elmore.tasks.coref.config import RankerConfig
from elmore.tasks.coref.data import Cluster, Mention
from elmore.tasks.modules.rnn import BiLSTM
from elmore.tasks.task import TaskModel
from elmore.tasks.words import WordBatch, Words
from elmore.transfer import to_device

_FARTHEST = (1, 2, 3, 4, 7, 15, 31, 63)
"""The last distance of each bucket but the open one: 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64+."""

_PAIRS = 1 << 17
"""Pairs that are scored together; each takes some 20 kB, so that long documents need a limit."""


class DocumentBatch(NamedTuple):
    """What is known of a document besides its words."""

    sentences: slice
    """Its rows of the batch."""

    genre: Int[Tensor, ""]
    speakers: Int[Tensor, " N"]
    mentions: Int[Tensor, "M 3"]
    """On the CPU: start, end and cluster, which counts from 1."""


class CorefBatch(NamedTuple):
    """Documents, sentence by sentence."""

    words: WordBatch
    documents: list[DocumentBatch]


class Spans(NamedTuple):
    """Words from `start` up to, not including, `end`."""

    start: Int[Tensor, " S"]
    end: Int[Tensor, " S"]

    def to(self, device: torch.device) -> "Spans":
        """Return the spans on a device."""
        return Spans(*(to_device(x, device) for x in self))

    def take(self, rows: Int[Tensor, " K"]) -> "Spans":
        """Return some of the spans."""
        return Spans(self.start[rows], self.end[rows])


class Ranking(NamedTuple):
    """The spans of a document that are kept, in its order, and how well they go together."""

    spans: Spans
    """On the CPU."""

    scores: Float[Tensor, "K C"]
    """Column a: the span a places before is the antecedent; column 0: there is none."""


class CorefRanker(TaskModel[CorefBatch, list[Cluster]]):
    """[word; characters; ELMo] -> biLSTM -> spans -> the best of them -> scores of antecedents."""

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
        """Return -log p of the right antecedents, for an average document."""
        rankings = self._rank(batch)
        losses = [
            antecedent_loss(
                ranking.scores,
                to_device(cluster_of(ranking.spans, document.mentions), ranking.scores.device),
            )
            for ranking, document in zip(rankings, batch.documents, strict=True)
        ]
        return torch.stack(losses).mean()

    def predict(self, batch: CorefBatch) -> list[list[Cluster]]:
        """Return the clusters of each document; a span without an antecedent alone is none."""
        return [
            clusters_of(
                list(map(Mention, ranking.spans.start.tolist(), ranking.spans.end.tolist())),
                ranking.scores.argmax(dim=1).tolist(),
            )
            for ranking in self._rank(batch)
        ]

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
        # The one place where the CPU waits for the device: which spans may be kept depends on
        # those that are better, one after the other.
        kept = best_spans(
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
    """Networks of one shape: hidden layers of ReLU, dropout after each, and one output."""

    hidden: int
    num_layers: int
    dropout: float

    def build(self, in_dim: int) -> nn.Sequential:
        """Return such a network."""
        first = nn.Linear(in_dim, self.hidden)
        return nn.Sequential(first, *self.build_after_first())

    def build_after_first(self) -> nn.Sequential:
        """Return what follows its first linear layer."""
        layers: list[nn.Module] = [nn.ReLU(), nn.Dropout(self.dropout)]
        for _ in range(1, self.num_layers):
            layers += [nn.Linear(self.hidden, self.hidden), nn.ReLU(), nn.Dropout(self.dropout)]
        return nn.Sequential(*layers, nn.Linear(self.hidden, 1))


class SpanEncoder(nn.Module):
    """A span as [first word; last word; head; width], each word as the biLSTM sees it.

    The head is a weighted sum of the span's words as they enter the biLSTM.
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
        """Return the sums for all spans, by first word and width.

        Spans that begin at a word share its window of W words, so this takes W times less memory
        than to gather the words of each span. Spans that leave the document are meaningless.
        """
        N, W = len(x), self.max_width
        places = torch.arange(W, device=x.device)
        window = (torch.arange(N, device=x.device)[:, None] + places).clamp(max=N - 1)  # (N, W)
        inside = places <= places[:, None]  # the span of width w + 1 has the places up to w
        scores = score[window][:, None].masked_fill(~inside, -torch.inf)  # (N, W, W)
        return scores.softmax(dim=-1) @ x[window]


class PairScorer(nn.Module):
    """How well a span continues another: s(i, j) = s_m(i) + s_m(j) + s_a(i, j)."""

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
        # Genre 0 is one that is not known; like a dropped feature, it is zero.
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
        """Score each span with those before it, the nearest first, after 0 for none of them."""
        K, A = len(g), min(self.max_antecedents, len(g) - 1)
        distance = torch.arange(A, 0, -1, device=g.device)
        same_speaker = speaker[:, None] == rows_before(speaker, A)
        features = self._features(distance, genre, same_speaker)
        _, v, _, _ = self._weights()
        shares = rows_before(functional.linear(g, v), A)
        size = max(1, _PAIRS // max(A, 1))
        parts = (x.split(size) for x in (g, rows_before(g, A), shares, features))
        pairs = torch.cat([self._pairs(*some) for some in zip(*parts, strict=True)])
        scores = pairs + mention_score[:, None] + rows_before(mention_score, A)
        exists = places_before(K, A, g.device) >= 0
        return functional.pad(scores.flip(1).masked_fill(~exists, -torch.inf), (1, 0))

    def _weights(self) -> tuple[Tensor, ...]:
        """Return the first layer's weights of g_i, of g_j, of their product and of features."""
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
        shares: Float[Tensor, "k A H"],
        features: Float[Tensor, "k A F"],
    ) -> Float[Tensor, "k A"]:
        """Return s_a(i, j) = FFNN([g_i; g_j; g_i * g_j; features])."""
        # The first layer part by part: what depends on one span alone is computed once a span,
        # which takes a third of the time and memory. `shares` is that of g_j.
        u, _, w, f = self._weights()
        x = functional.linear(g[:, None] * before, w, self.first.bias)
        x = x + functional.linear(g, u)[:, None] + shares + functional.linear(features, f)
        return self.rest(x)[..., 0]


def word_rows(lengths: Int[Tensor, " B"], longest: int) -> Int[Tensor, " N"]:
    """Return where the words are in sentences padded to `longest`: (2, 1), 3 -> 0 1 3."""
    return torch.cat([torch.arange(n) + longest * row for row, n in enumerate(lengths.tolist())])


def candidate_spans(lengths: Int[Tensor, " B"], max_width: int) -> Spans:
    """Return all spans of at most `max_width` words that lie in one sentence."""
    sentence_end = lengths.cumsum(0).repeat_interleave(lengths)  # (N,)
    start = torch.arange(len(sentence_end))[:, None].expand(-1, max_width)
    end = start + torch.arange(1, max_width + 1)
    inside = end <= sentence_end[:, None]
    return Spans(start[inside], end[inside])


def best_spans(scores: Float[Tensor, " S"], spans: Spans, count: int) -> Int[Tensor, " K"]:
    """Return the numbers of the best spans, at most `count` of which no two cross, in order.

    Greedily, from the best one down. Spans cross if they overlap and neither holds the other.
    """
    starts, lasts = spans.start.tolist(), (spans.end - 1).tolist()
    farthest: dict[int, int] = {}  # the last word of the widest kept span, by its first one
    earliest: dict[int, int] = {}  # and the other way round
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if len(kept) == count:
            break
        start, last = starts[i], lasts[i]
        if any(farthest.get(t, t) > last for t in range(start + 1, last + 1)):
            continue
        if any(earliest.get(t, t) < start for t in range(start, last)):
            continue
        farthest[start] = max(last, farthest.get(start, last))
        earliest[last] = min(start, earliest.get(last, start))
        kept.append(i)
    return torch.tensor(sorted(kept, key=lambda i: (starts[i], lasts[i])))


def rows_before(x: Shaped[Tensor, "K *F"], A: int) -> Shaped[Tensor, "K A *F"]:  # noqa: F821
    """Return for each row the A rows before it, the nearest last; zeros where there are none.

    As a view: to gather the rows would be to add up as many gradients one after the other.
    """
    padded = torch.cat([x.new_zeros(A, *x.shape[1:]), x[:-1]])
    return padded.unfold(0, A, 1).movedim(-1, 1)


def places_before(K: int, A: int, device: torch.device) -> Int[Tensor, "K A"]:
    """Return i - 1, i - 2, ..., i - A for each place i; those below 0 do not exist."""
    here, distance = torch.arange(K, device=device), torch.arange(1, A + 1, device=device)
    return here[:, None] - distance


def cluster_of(spans: Spans, mentions: Int[Tensor, "M 3"]) -> Int[Tensor, " K"]:
    """Return the cluster of each span, 0 for none; all on the CPU."""
    given = {(start, end): cluster for start, end, cluster in mentions.tolist()}
    found = zip(spans.start.tolist(), spans.end.tolist(), strict=True)
    return torch.tensor([given.get(span, 0) for span in found])


def antecedent_loss(scores: Float[Tensor, "K C"], cluster: Int[Tensor, " K"]) -> Float[Tensor, ""]:
    """Return -log of the probability of all right antecedents, summed over spans."""
    before = places_before(len(scores), scores.shape[1] - 1, scores.device)
    same = cluster[before.clamp(min=0)] == cluster[:, None]
    right = same & (before >= 0) & (cluster[:, None] > 0)  # (K, A)
    none = ~right.any(dim=1, keepdim=True)  # a first mention, or no mention at all
    right = torch.cat([none, right], dim=1)
    of_right = scores.masked_fill(~right, -torch.inf).logsumexp(dim=1)
    return (scores.logsumexp(dim=1) - of_right).sum()


def clusters_of(mentions: Sequence[Mention], distances: Sequence[int]) -> list[Cluster]:
    """Join each mention with its antecedent, so many places before; 0 is none."""
    clusters: list[Cluster] = []
    cluster: dict[int, Cluster] = {}
    for i, (mention, distance) in enumerate(zip(mentions, distances, strict=True)):
        if not distance:
            continue
        if i - distance not in cluster:
            cluster[i - distance] = [mentions[i - distance]]
            clusters.append(cluster[i - distance])
        cluster[i] = cluster[i - distance]
        cluster[i].append(mention)
    return sorted(clusters)
