"""Memory and matrix products of the CPU engine. Oracles: counts by hand; the plain biLM."""

import copy
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmore.bilm.model import BiLM
from elmore.inference import cpu, packed
from elmore.inference.cpu import CpuEngine, _order_by_step
from elmore.inference.engine import TokenRows
from elmore.inference.packed import PackedInt8, PackedLinear
from elmore.text.characters import encode_words
from tests.cpu import needs_int8, needs_onednn
from tests.inference.conftest import Case, make_case


@given(st.lists(st.integers(0, 12), max_size=20))
def test_tokens_are_ordered_by_step_and_sentence_length(lengths: list[int]) -> None:
    """Oracle: loops over steps and, for each step, over sentences, longest first."""
    n = np.array(lengths, dtype=np.int64)
    order = np.argsort(-n, kind="stable")
    counts = [sum(length > t for length in lengths) for t in range(max(lengths, default=0))]
    starts = np.cumsum(n) - n
    for backward in (False, True):
        expected = [
            starts[i] + (lengths[i] - 1 - t if backward else t)
            for t in range(max(lengths, default=0))
            for i in order
            if t < lengths[i]
        ]
        assert _order_by_step(n, order, counts, backward=backward).tolist() == expected


@needs_onednn
def test_plain_matrices_are_freed_while_the_model_is_packed(
    bilm: BiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: weak references to the plain matrices, counted after each matrix is packed."""
    owned = copy.deepcopy(bilm)
    plain = [weakref.ref(p) for p in owned.parameters() if p.dim() > 1]
    alive = []
    init = PackedLinear.__init__

    def pack_and_count(self: PackedLinear, *args: Any) -> None:
        init(self, *args)
        alive.append(sum(ref() is not None for ref in plain))

    monkeypatch.setattr(PackedLinear, "__init__", pack_and_count)
    engine = CpuEngine(owned)
    matrices = len(plain) - 1  # the character table is not packed
    in_progress = 3  # matrices of the LSTM that is being packed
    assert len(alive) == matrices
    assert all(count <= matrices - i + in_progress for i, count in enumerate(alive))
    assert sum(ref() is not None for ref in plain) == 1
    del engine


@needs_onednn
@torch.no_grad()
def test_first_layer_multiplies_each_distinct_word_once(
    bilm: BiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = [["a", "rose", "is", "a", "rose"], ["is", "it"], ["a"]]
    case = make_case(bilm, encode_words, sentences)
    engine = CpuEngine(copy.deepcopy(bilm))
    start = engine.start_state(case.table[:2])
    expected = case.words_of(case.expected()[0])
    row = 4 * bilm.config.cell_dim * 4  # bytes
    for max_tokens, products in ((18, [4]), (6, [4, 2]), (2, [2, 2, 2, 1])):
        rows: list[int] = []
        monkeypatch.setattr(cpu, "_GATE_BYTES", max_tokens // 2 * row)  # half are distinct words
        hook = engine._forward[0]._input.register_forward_hook(
            lambda _, args, __, rows=rows: rows.append(len(args[0]))
        )
        layers = engine.run(TokenRows(case.table, *case.without_boundaries()), start)
        hook.remove()
        torch.testing.assert_close(layers, expected, rtol=0, atol=2e-6)
        # Tokens of each step: a is a; rose it; is; a; rose. A product covers one step, or several
        # steps with up to `max_tokens` tokens, and has one row per distinct word.
        assert rows == products


@needs_onednn
@torch.no_grad()
def test_layers_do_not_depend_on_the_memory_for_gates(
    tiny: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = CpuEngine(copy.deepcopy(tiny.bilm))
    expected, _ = engine.run_with_state(TokenRows(tiny.table, tiny.tokens, tiny.lengths))
    row = 4 * tiny.bilm.config.cell_dim * 4  # bytes
    for rows in (0, 1, 5, 50):
        monkeypatch.setattr(cpu, "_GATE_BYTES", rows * row)
        layers, _ = engine.run_with_state(TokenRows(tiny.table, tiny.tokens, tiny.lengths))
        torch.testing.assert_close(layers, expected, rtol=0, atol=1e-6)


@needs_int8
def test_int8_activations_have_seven_bits_without_vnni(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the product in float32. Large int8 values overflow the 16-bit sums of older CPUs."""
    weight, x = torch.full((4, 64), 1.0), torch.full((3, 64), 1.0)
    x[0] = -1.0
    for vnni in (True, False):
        monkeypatch.setattr(packed, "has_vnni", lambda vnni=vnni: vnni)
        matrix = PackedInt8(weight, None)
        assert matrix._reduce_range is not vnni
        torch.testing.assert_close(matrix(x), x @ weight.T, rtol=0.02, atol=0)
