"""The span-ranking model.

Oracles: the formulas of the paper in loops over spans, brute-force pruning, and batches of one
document.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from elmore.tasks.config import ElmoConfig, WordsConfig
from elmore.tasks.coref.config import CorefConfig, RankerConfig
from elmore.tasks.coref.data import CorefExample
from elmore.tasks.coref.model import CorefRanker, FeedForward, PairScorer, SpanEncoder
from elmore.tasks.coref.ranking import (
    Spans,
    antecedent_loss,
    build_clusters,
    candidate_spans,
    cluster_ids,
    prune_spans,
    word_rows,
)
from elmore.tasks.coref.task import Coref
from elmore.tasks.spans import Span
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import WordEncoder, WordIndex, Words

FFNN = FeedForward(hidden=6, num_layers=2, dropout=0.0)
LABELS = {"genres": ["bc", "nw"]}


def document(*sentences: str, genre: str = "bc", clusters: list[list[Span]]) -> CorefExample:
    split = [sentence.split() for sentence in sentences]
    speakers = [str(row % 2) for row, words in enumerate(split) for _ in words]
    return CorefExample("d", genre, split, speakers, clusters)


DOCUMENTS = [
    document("Ada saw the old bank", "She slept", clusters=[[Span(0, 1), Span(5, 6)]]),
    document("It rained", genre="xx", clusters=[]),
    document(
        "The old man of the sea saw it",
        "He",
        "The sea sang",
        genre="nw",
        clusters=[[Span(0, 6), Span(8, 9)], [Span(4, 6), Span(7, 8), Span(9, 11)]],
    ),
]


def model_and_encoder() -> tuple[CorefRanker, WordEncoder]:
    words = sorted({w for d in DOCUMENTS for s in d.sentences for w in s})
    index = WordIndex(words, [])
    known = WordVectors([], np.zeros((0, 5), np.float32))
    config = CorefConfig(
        ranker=RankerConfig(
            hidden=4, ffnn_hidden=6, feature_dim=3, max_width=4, spans_per_word=1.0
        ),
        words=WordsConfig(char_filters=3, char_dim=2),
        elmo=ElmoConfig(place="none"),
    )
    layers = Words(config.words, config.elmo, index, known, num_layers=0, elmo_dim=0)
    model = Coref().build(config, layers, LABELS).eval()
    return model, WordEncoder(index, None, with_characters=True, device=torch.device("cpu"))


def test_candidates_are_all_short_spans_within_a_sentence() -> None:
    lengths = [3, 1, 5]
    expected = []
    start = 0
    for length in lengths:
        for i in range(length):
            expected += [(start + i, start + j) for j in range(i + 1, min(length, i + 3) + 1)]
        start += length
    actual = candidate_spans(torch.tensor(lengths), 3)
    assert list(zip(actual.start.tolist(), actual.end.tolist(), strict=True)) == expected


def test_word_rows_skip_padding() -> None:
    assert word_rows(torch.tensor([2, 1, 3]), 4).tolist() == [0, 1, 4, 8, 9, 10]


def cross(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two spans overlap without one containing the other."""
    words, others = set(range(*a)), set(range(*b))
    return bool(words & others) and not words <= others and not others <= words


@pytest.mark.parametrize("seed", range(20))
def test_pruning_is_greedy_without_crossing_spans(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    spans = candidate_spans(torch.tensor([7, 5]), 5)
    pairs = list(zip(spans.start.tolist(), spans.end.tolist(), strict=True))
    scores = torch.rand(len(pairs), generator=generator)
    expected: list[int] = []
    for i in sorted(range(len(pairs)), key=lambda i: -scores[i].item()):
        if len(expected) < 10 and not any(cross(pairs[i], pairs[j]) for j in expected):
            expected.append(i)
    actual = prune_spans(scores, spans, 10)
    assert actual.tolist() == sorted(expected, key=pairs.__getitem__)


def test_span_representation_matches_the_formula() -> None:
    encode = SpanEncoder(3, 4, FFNN, max_width=4, width_dim=2).double()
    x, h = torch.randn(6, 3).double(), torch.randn(6, 4).double()
    spans = candidate_spans(torch.tensor([4, 2]), 4)
    actual = encode(x, h, spans)
    for row, (start, end) in enumerate(zip(*(s.tolist() for s in spans), strict=True)):
        weights = [math.exp(encode.attend(h[t]).item()) for t in range(start, end)]
        head = sum(w * x[t] for w, t in zip(weights, range(start, end), strict=True))
        width = encode.width.weight[end - start - 1]
        expected = torch.cat([h[start], h[end - 1], head / sum(weights), width])
        torch.testing.assert_close(actual[row], expected)


def bucket(distance: int) -> int:
    """The distance buckets of Lee et al.: 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64+."""
    return [distance >= first for first in (2, 3, 4, 5, 8, 16, 32, 64)].count(True)


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pair_scores_match_the_formula(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmore.tasks.coref.model._PAIRS", 5 * limit)  # chunks of 5 rows
    K, G = 68, 3
    scorer = PairScorer(G, FFNN, feature_dim=2, num_genres=2, max_antecedents=limit).double()
    g, mention = torch.randn(K, G).double(), torch.randn(K).double()
    speaker = torch.randint(2, (K,))
    genre = torch.tensor(2)
    actual = scorer(g, mention, genre, speaker)
    assert actual.shape == (K, min(limit, K - 1) + 1)
    assert not actual[:, 0].any()
    for i in range(K):
        for distance in range(1, actual.shape[1]):
            j = i - distance
            if j < 0:
                assert actual[i, distance] == -torch.inf
                continue
            features = torch.cat(
                [
                    scorer.distance.weight[bucket(distance)],
                    scorer.genre.weight[genre],
                    scorer.speaker.weight[int(speaker[i] == speaker[j])],
                ]
            )
            pair = torch.cat([g[i], g[j], g[i] * g[j], features])
            score = scorer.rest(scorer.first(pair))[0] + mention[i] + mention[j]
            torch.testing.assert_close(actual[i, distance], score)


def test_loss_is_the_marginal_log_likelihood_of_the_gold_antecedents() -> None:
    K, A = 6, 3
    cluster = [1, 0, 1, 2, 1, 0]
    scores = torch.randn(K, A + 1).double()
    scores[:, 0] = 0
    for i in range(A):
        scores[i, i + 1 :] = -torch.inf
    expected = 0.0
    for i in range(K):
        exp_scores = [math.exp(score) for score in scores[i].tolist()]
        gold = [a for a in range(1, A + 1) if a <= i and 0 < cluster[i] == cluster[i - a]]
        expected -= math.log(sum(exp_scores[a] for a in gold or [0]) / sum(exp_scores))
    scores.requires_grad_()
    loss = antecedent_loss(scores, torch.tensor(cluster))
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_single_span_has_no_antecedent() -> None:
    scorer = PairScorer(3, FFNN, feature_dim=2, num_genres=0, max_antecedents=5)
    scores = scorer(torch.randn(1, 3), torch.randn(1), torch.tensor(0), torch.zeros(1).long())
    assert scores.tolist() == [[0.0]]
    assert antecedent_loss(scores, torch.tensor([1])).item() == 0


def test_spans_get_the_cluster_ids_of_their_mentions() -> None:
    spans = Spans(torch.tensor([0, 0, 3]), torch.tensor([1, 2, 5]))
    mentions = torch.tensor([[0, 2, 1], [3, 5, 2], [3, 9, 2]])
    assert cluster_ids(spans, mentions).tolist() == [0, 1, 2]
    assert cluster_ids(spans, torch.zeros(0, 3).long()).tolist() == [0, 0, 0]


def test_clusters_are_the_transitive_closure() -> None:
    a, b, c, d, e = (Span(i, i + 1) for i in range(5))
    # c -> a, d -> b, e -> c
    probabilities = [0.1, 0.2, 0.3, 0.4, 0.5]
    assert build_clusters([a, b, c, d, e], [0, 0, 2, 2, 2], probabilities) == [
        {a: 0.1, c: 0.3, e: 0.5},
        {b: 0.2, d: 0.4},
    ]
    assert build_clusters([a, b], [0, 0], [0.1, 0.2]) == []


def test_batch_equals_separate_documents() -> None:
    model, encode = model_and_encoder()
    task = Coref()

    def loss(*examples: CorefExample) -> Tensor:
        return model(task.collate(examples, encode, LABELS))

    losses = torch.stack([loss(example) for example in DOCUMENTS])
    torch.testing.assert_close(loss(*DOCUMENTS), losses.mean())
    torch.testing.assert_close(loss(*DOCUMENTS[::-1]), losses.mean())
    together = model.predict(task.collate(DOCUMENTS, encode, LABELS))
    separate = [model.predict(task.collate([example], encode, LABELS))[0] for example in DOCUMENTS]
    assert together == separate


def test_genre_and_speakers_change_the_loss() -> None:
    model, encode = model_and_encoder()

    def loss(example: CorefExample) -> float:
        return model(Coref().collate([example], encode, LABELS)).item()

    example = DOCUMENTS[2]
    original = loss(example)
    assert loss(example._replace(genre="bc")) != original
    assert loss(example._replace(speakers=["-"] * 12)) != original
    # Only whether two speakers are the same matters, not their names.
    renamed = [{"0": "Ann", "1": "Bob"}[speaker] for speaker in example.speakers]
    assert loss(example._replace(speakers=renamed)) == original


def test_empty_sentences_do_not_change_the_loss() -> None:
    model, encode = model_and_encoder()
    example = DOCUMENTS[0]
    empty = example._replace(sentences=[[], example.sentences[0], [], example.sentences[1]])
    losses = [model(Coref().collate([e], encode, LABELS)) for e in (example, empty)]
    torch.testing.assert_close(*losses)


def test_every_parameter_gets_a_finite_nonzero_gradient() -> None:
    model, encode = model_and_encoder()
    model(Coref().collate([DOCUMENTS[0], DOCUMENTS[2]], encode, LABELS)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
