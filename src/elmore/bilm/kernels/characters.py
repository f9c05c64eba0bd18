"""Character n-gram filters and their max-pool, without the values that the pool drops.

A word is E values for each of C characters, stored one after the other, so a window of
characters is a contiguous run of them and all windows of some words are a matrix. All filters
are one matrix too, the narrow ones filled up with zeros. The forward kernel multiplies tiles of
the two, place after place, and keeps the maximum and its place, nothing else.

Beyond its last letter a word is all padding, where every window is alike. So the windows up to
the first of these give the exact maximum, about ten instead of fifty.

The gradient of a maximum is that of one window. The backward kernels rebuild the matrix of
gradients of all windows, mostly zeros, tile by tile on chip, and multiply it.

N words, C characters, E character dim, F filters, W width of the widest, K = W E.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any, cast

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.bilm.kernels import compute_dtype
from elmore.bilm.token_encoder import CharEncoder

_WORDS, _FILTERS = 64, 64  # of a tile: one window of each word
_SPLITS = 8  # parts of the sum over words, in the gradient of the filters
_FILTER_SPLITS = 4  # parts of the sum over filters, in the gradient of the characters
_COPIES = 64  # of the character table, so that few atomics meet in its gradient


def encode(encoder: CharEncoder, ids: Int[Tensor, "N C"]) -> Float[Tensor, "N D"]:
    """Encode every token on its own, as `encoder` does; fastest if sorted by length."""
    convs = cast("list[nn.Conv1d]", list(encoder.convs))
    weights, biases = zip(*(conv.parameters() for conv in convs), strict=True)
    widths = tuple(conv.kernel_size[0] for conv in convs for _ in range(conv.out_channels))
    widest = max(widths)
    filters = torch.cat(
        [functional.pad(w.mT, (0, 0, 0, widest - w.shape[2])).flatten(1) for w in weights]
    )  # (F, K)
    widths_there = _on_device(widths, ids.device)
    pooled = _Pooled.apply(
        ids, encoder.embed.weight, filters, torch.cat(biases), widths_there, compute_dtype(filters)
    )
    return encoder.project(encoder.highways(encoder.activation(pooled)))


def ends_of(ids: Int[Tensor, "N C"]) -> Int[Tensor, " N"]:
    """Return where each word becomes alike to its end: [b a t _ _ _] -> 3."""
    place = torch.arange(1, ids.shape[1] + 1, dtype=torch.int32, device=ids.device)
    return ((ids != ids[:, -1:]) * place).amax(dim=1)


_tables: dict[tuple[tuple[int, ...], torch.device], Tensor] = {}


def _on_device(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    # Kept, because a copy from the host would make it wait for the device.
    key = numbers, device
    if key not in _tables:
        _tables[key] = torch.tensor(numbers, dtype=torch.int32, device=device)
    return _tables[key]


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        ids: Tensor,
        embed: Tensor,
        filters: Tensor,
        bias: Tensor,
        widths: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        ids = ids.long()
        (N, C), E, (F, K) = ids.shape, embed.shape[1], filters.shape
        x = embed.to(dtype)[ids]  # (N, C, E)
        ends = ends_of(ids)
        pooled = torch.empty(N, F, dtype=dtype, device=ids.device)
        where = torch.empty(N, F, dtype=torch.uint8, device=ids.device)
        tiles = (triton.cdiv(N, _WORDS), triton.cdiv(F, _FILTERS))
        filters = filters.to(dtype)
        _convolve[tiles](
            x, filters, bias, widths, ends, pooled, where, N, C, E, F, K,
            triton.next_power_of_2(K), _WORDS, _FILTERS, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(ids, x, ends, filters, where)
        ctx.num_characters = len(embed)
        return pooled

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ids, x, ends, filters, where = ctx.saved_tensors
        (N, C, E), (F, K) = x.shape, filters.shape
        grad = grad.contiguous()
        parts = torch.empty(_SPLITS, F, K, device=x.device)
        _filter_gradient[(triton.cdiv(F, _FILTERS), _SPLITS)](
            x, grad, where, ends, parts, N, C, E, F, K,
            triton.next_power_of_2(K), _WORDS, _FILTERS, num_warps=4,
        )  # fmt: skip
        d_x = torch.zeros(_FILTER_SPLITS, N, C, E, device=x.device)
        _character_gradient[(triton.cdiv(N, _WORDS), _FILTER_SPLITS)](
            grad, where, filters, ends, d_x, N, C, E, F, K,
            triton.next_power_of_2(K), _WORDS, _FILTERS, num_warps=4,
        )  # fmt: skip
        copy = torch.arange(N, device=x.device)[:, None] % _COPIES
        d_embed = torch.zeros(_COPIES * ctx.num_characters, E, device=x.device)
        d_embed.index_add_(0, (ids + copy * ctx.num_characters).flatten(), d_x.sum(0).flatten(0, 1))
        d_embed = d_embed.view(_COPIES, -1, E).sum(0)
        d_embed[0] = 0  # the row that means "no token" is no parameter
        return None, d_embed, parts.sum(0), grad.sum(0, dtype=torch.float32), None, None


@triton.jit
def _windows(x, words, place, N, C, E: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """The windows of some words that begin at one place; what lies beyond a word is 0."""
    k = tl.arange(0, BLOCK_K)[None, :]
    mask = (words[:, None] < N) & (k < K) & (k < (C - place) * E)
    return tl.load(x + (words[:, None].to(tl.int64) * C + place) * E + k, mask, 0)


@triton.jit(do_not_specialize=["N", "C"])
def _convolve(
    x, filters, bias, widths, ends, pooled, where, N, C, E: tl.constexpr,
    F: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr,
    WORDS: tl.constexpr, FILTERS: tl.constexpr,
):  # fmt: skip
    """Maximum over the windows of each word, and where it is."""
    words = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    f = tl.program_id(1) * FILTERS + tl.arange(0, FILTERS)
    k = tl.arange(0, BLOCK_K)[:, None]
    w = tl.load(filters + f[None, :] * K + k, (f[None, :] < F) & (k < K), 0)
    end = tl.load(ends + words, words < N, 0)
    last = C - tl.load(widths + f, f < F, 1)
    best = tl.full((WORDS, FILTERS), -float("inf"), tl.float32)
    at = tl.zeros((WORDS, FILTERS), tl.int32)
    for place in range(tl.max(end) + 1):
        window = _windows(x, words, place, N, C, E, K, BLOCK_K)
        value = tl.dot(window, w, input_precision="ieee")
        better = (value > best) & (place <= end)[:, None] & (place <= last)[None, :]
        best = tl.where(better, value, best)
        at = tl.where(better, place, at)
    best += tl.load(bias + f, f < F, 0)[None, :]
    out = words[:, None].to(tl.int64) * F + f[None, :]
    mask = (words[:, None] < N) & (f[None, :] < F)
    tl.store(pooled + out, best.to(pooled.dtype.element_ty), mask)
    tl.store(where + out, at.to(tl.uint8), mask)


@triton.jit(do_not_specialize=["N"])
def _filter_gradient(
    x, grad, where, ends, parts, N, C: tl.constexpr, E: tl.constexpr,
    F: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr,
    WORDS: tl.constexpr, FILTERS: tl.constexpr,
):  # fmt: skip
    """Gradient of some filters over some of the words."""
    f = tl.program_id(0) * FILTERS + tl.arange(0, FILTERS)
    total = tl.zeros((FILTERS, BLOCK_K), tl.float32)
    for block in range(tl.program_id(1), tl.cdiv(N, WORDS), tl.num_programs(1)):
        words = block * WORDS + tl.arange(0, WORDS)
        # Transposed: filters first.
        own = words[None, :].to(tl.int64) * F + f[:, None]
        mask = (words[None, :] < N) & (f[:, None] < F)
        g = tl.load(grad + own, mask, 0)
        at = tl.load(where + own, mask, 0).to(tl.int32)
        for place in range(tl.max(tl.load(ends + words, words < N, 0)) + 1):
            window = _windows(x, words, place, N, C, E, K, BLOCK_K)
            of_place = tl.where(at == place, g, 0.0).to(window.dtype)
            total = tl.dot(of_place, window, total, input_precision="ieee")
    k = tl.arange(0, BLOCK_K)[None, :]
    to = (tl.program_id(1) * F + f[:, None]) * K + k
    tl.store(parts + to, total, (f[:, None] < F) & (k < K))


@triton.jit(do_not_specialize=["N"])
def _character_gradient(
    grad, where, filters, ends, d_x, N, C: tl.constexpr, E: tl.constexpr,
    F: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr,
    WORDS: tl.constexpr, FILTERS: tl.constexpr,
):  # fmt: skip
    """Gradient of the characters of some words, from some of the filters."""
    words = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    k = tl.arange(0, BLOCK_K)[None, :]
    d_x += (tl.program_id(1).to(tl.int64) * N + words[:, None]) * C * E
    for place in range(tl.max(tl.load(ends + words, words < N, 0)) + 1):
        total = tl.zeros((WORDS, BLOCK_K), tl.float32)
        for start in range(tl.program_id(1) * FILTERS, F, tl.num_programs(1) * FILTERS):
            f = start + tl.arange(0, FILTERS)
            own = words[:, None].to(tl.int64) * F + f[None, :]
            mask = (words[:, None] < N) & (f[None, :] < F)
            w = tl.load(filters + f[:, None] * K + k, (f[:, None] < F) & (k < K), 0)
            at = tl.load(where + own, mask, 0).to(tl.int32)
            of_place = tl.where(at == place, tl.load(grad + own, mask, 0), 0.0).to(w.dtype)
            total = tl.dot(of_place, w, total, input_precision="ieee")
        # A window is a run of the word's values, which overlaps with the run of the next place.
        mask = (words[:, None] < N) & (k < K) & (k < (C - place) * E)
        to = d_x + place * E + k
        tl.store(to, tl.load(to, mask, 0) + total, mask)
        tl.debug_barrier()
