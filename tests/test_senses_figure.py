"""The figure of the README. Oracle: random vectors, which are equal in layer 0."""

import numpy as np

from elmore.analysis.senses import WordSenses
from scripts.senses_figure import SENSES, TITLES, draw


def test_layer_0_is_one_point_and_the_others_show_every_occurrence() -> None:
    senses = [*SENSES] * 4
    vectors = np.random.default_rng(0).normal(size=(len(TITLES), len(senses), 8))
    vectors[0] = vectors[0, 0]
    panels = draw(WordSenses("play", senses, vectors.astype(np.float32))).axes
    assert [axes.get_title() for axes in panels] == TITLES
    assert [text.get_text().split()[:2] for text in panels[0].texts] == [["all", "12"]]
    for axes in panels[1:]:
        offsets = np.concatenate([points.get_offsets() for points in axes.collections])
        assert len(np.unique(offsets, axis=0)) == len(senses)
