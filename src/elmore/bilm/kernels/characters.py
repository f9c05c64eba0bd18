"""Character convolutions fused with max-pooling.

The E values of each of a word's C characters are contiguous in memory, so a window of W characters
is a row of K = W E values, and the windows of many words at the same position form a matrix. All
filters form a second matrix, in which narrow filters are zero-padded to K. The forward kernel
multiplies tiles of both matrices, position by position, and stores only the maximum and its
position. It stops at the end of the longest word of a tile (see `word_ends`), on average after
about ten positions instead of fifty.

Only the window at the maximum gets a gradient. The backward kernels build the matrix of gradients
of all windows, which is mostly zeros, tile by tile in registers, and multiply it.

N words, C characters, E character dim, F filters, W width of the widest filter, K = W E.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from functools import cache
from typing import Any, cast

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from elmore.bilm.kernels import compute_dtype
from elmore.bilm.token_encoder import CharEncoder, word_ends

_WORDS, _FILTERS = 64, 64  # size of a tile: one window of each word, by filters
_WORD_SPLITS = 8  # partial sums over the words, for the gradient of the filters
_FILTER_SPLITS = 4  # partial sums over the filters, for the gradient of the characters
_TABLES = 64  # partial gradients of the embedding table, to reduce contention of atomic additions


def encode(encoder: CharEncoder, ids: Int[Tensor, "N C"]) -> Float[Tensor, "N D"]:
    """Return `encoder(ids)`. Fastest if words are sorted by length."""
    convs = cast("list[nn.Conv1d]", list(encoder.convs))
    weights, biases = zip(*(conv.parameters() for conv in convs), strict=True)
    widths = tuple(conv.kernel_size[0] for conv in convs for _ in range(conv.out_channels))
    widest = max(widths)
    filters = torch.cat(
        [functional.pad(w.mT, (0, 0, 0, widest - w.shape[2])).flatten(1) for w in weights]
    )  # (F, K)
    pooled = _Pooled.apply(
        ids,
        encoder.embed.weight,
        filters,
        torch.cat(biases),
        _widths_on(widths, ids.device),
        compute_dtype(filters),
    )
    return encoder.project(encoder.highways(encoder.activation(pooled)))


@cache  # a copy from the host would synchronize, and cannot be captured in a CUDA graph
def _widths_on(widths: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(widths, dtype=torch.int32, device=device)


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
        ends = word_ends(ids)
        pooled = torch.empty(N, F, dtype=dtype, device=ids.device)
        argmax_dtype = torch.uint8 if C <= 256 else torch.int32
        argmax = torch.empty(N, F, dtype=argmax_dtype, device=ids.device)
        tiles = (triton.cdiv(N, _WORDS), triton.cdiv(F, _FILTERS))
        filters = filters.to(dtype)
        _convolve[tiles](
            x, filters, bias, widths, ends, pooled, argmax, N, C, E, F, K,
            triton.next_power_of_2(K), _WORDS, _FILTERS, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(ids, x, ends, filters, argmax)
        ctx.num_characters = len(embed)
        return pooled

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ids, x, ends, filters, argmax = ctx.saved_tensors
        (N, C, E), (F, K) = x.shape, filters.shape
        grad = grad.contiguous()
        d_filters = torch.empty(_WORD_SPLITS, F, K, device=x.device)
        _filter_gradient[(triton.cdiv(F, _FILTERS), _WORD_SPLITS)](
            x, grad, argmax, ends, d_filters, N, C, E, F, K,
            triton.next_power_of_2(K), _WORDS, _FILTERS, num_warps=4,
        )  # fmt: skip
        d_x = torch.zeros(_FILTER_SPLITS, N, C, E, device=x.device)
        _character_gradient[(triton.cdiv(N, _WORDS), _FILTER_SPLITS)](
            grad, argmax, filters, ends, d_x, N, C, E, F, K,
            triton.next_power_of_2(K), _WORDS, _FILTERS, num_warps=4,
        )  # fmt: skip
        table = torch.arange(N, device=x.device)[:, None] % _TABLES
        rows = (ids + table * ctx.num_characters).flatten()
        d_embed = torch.zeros(_TABLES * ctx.num_characters, E, device=x.device)
        d_embed.index_add_(0, rows, d_x.sum(0).flatten(0, 1))
        d_embed = d_embed.view(_TABLES, -1, E).sum(0)
        d_embed[0] = 0  # `padding_idx` has no gradient
        return None, d_embed, d_filters.sum(0), grad.sum(0, dtype=torch.float32), None, None


@triton.jit
def _windows(x, words, position, N, C, E: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Load the window at `position` of each word, zero-padded after the last character."""
    k = tl.arange(0, BLOCK_K)[None, :]
    mask = (words[:, None] < N) & (k < K) & (k < (C - position) * E)
    return tl.load(x + (words[:, None].to(tl.int64) * C + position) * E + k, mask, 0)


@triton.jit(do_not_specialize=["N", "C"])
def _convolve(
    x, filters, bias, widths, ends, pooled, argmax, N, C, E: tl.constexpr,
    F: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr,
    WORDS: tl.constexpr, FILTERS: tl.constexpr,
):  # fmt: skip
    """Compute the maximum over the windows of each word, and its position."""
    words = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    f = tl.program_id(1) * FILTERS + tl.arange(0, FILTERS)
    k = tl.arange(0, BLOCK_K)[:, None]
    w = tl.load(filters + f[None, :] * K + k, (f[None, :] < F) & (k < K), 0)
    end = tl.load(ends + words, words < N, 0)
    last = C - tl.load(widths + f, f < F, 1)
    best = tl.full((WORDS, FILTERS), -float("inf"), tl.float32)
    at = tl.zeros((WORDS, FILTERS), tl.int32)
    for position in range(tl.max(end) + 1):
        window = _windows(x, words, position, N, C, E, K, BLOCK_K)
        value = tl.dot(window, w, input_precision="ieee")
        better = (value > best) & (position <= end)[:, None] & (position <= last)[None, :]
        best = tl.where(better, value, best)
        at = tl.where(better, position, at)
    best += tl.load(bias + f, f < F, 0)[None, :]
    out = words[:, None].to(tl.int64) * F + f[None, :]
    mask = (words[:, None] < N) & (f[None, :] < F)
    tl.store(pooled + out, best.to(pooled.dtype.element_ty), mask)
    tl.store(argmax + out, at.to(argmax.dtype.element_ty), mask)


@triton.jit(do_not_specialize=["N"])
def _filter_gradient(
    x, grad, argmax, ends, d_filters, N, C: tl.constexpr, E: tl.constexpr,
    F: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr,
    WORDS: tl.constexpr, FILTERS: tl.constexpr,
):  # fmt: skip
    """Sum the gradient of a tile of filters over every _WORD_SPLITS-th tile of words."""
    f = tl.program_id(0) * FILTERS + tl.arange(0, FILTERS)
    total = tl.zeros((FILTERS, BLOCK_K), tl.float32)
    for block in range(tl.program_id(1), tl.cdiv(N, WORDS), tl.num_programs(1)):
        words = block * WORDS + tl.arange(0, WORDS)
        offset = words[None, :].to(tl.int64) * F + f[:, None]
        mask = (words[None, :] < N) & (f[:, None] < F)  # transposed: (filters, words)
        g = tl.load(grad + offset, mask, 0)
        at = tl.load(argmax + offset, mask, 0).to(tl.int32)
        for position in range(tl.max(tl.load(ends + words, words < N, 0)) + 1):
            window = _windows(x, words, position, N, C, E, K, BLOCK_K)
            gradient = tl.where(at == position, g, 0.0).to(window.dtype)
            total = tl.dot(gradient, window, total, input_precision="ieee")
    k = tl.arange(0, BLOCK_K)[None, :]
    to = (tl.program_id(1) * F + f[:, None]) * K + k
    tl.store(d_filters + to, total, (f[:, None] < F) & (k < K))


@triton.jit(do_not_specialize=["N"])
def _character_gradient(
    grad, argmax, filters, ends, d_x, N, C: tl.constexpr, E: tl.constexpr,
    F: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr,
    WORDS: tl.constexpr, FILTERS: tl.constexpr,
):  # fmt: skip
    """Sum the gradient of a tile of words over every _FILTER_SPLITS-th tile of filters."""
    words = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    k = tl.arange(0, BLOCK_K)[None, :]
    d_x += (tl.program_id(1).to(tl.int64) * N + words[:, None]) * C * E
    for position in range(tl.max(tl.load(ends + words, words < N, 0)) + 1):
        total = tl.zeros((WORDS, BLOCK_K), tl.float32)
        for start in range(tl.program_id(1) * FILTERS, F, tl.num_programs(1) * FILTERS):
            f = start + tl.arange(0, FILTERS)
            offset = words[:, None].to(tl.int64) * F + f[None, :]
            mask = (words[:, None] < N) & (f[None, :] < F)
            w = tl.load(filters + f[:, None] * K + k, (f[:, None] < F) & (k < K), 0)
            at = tl.load(argmax + offset, mask, 0).to(tl.int32)
            gradient = tl.where(at == position, tl.load(grad + offset, mask, 0), 0.0).to(w.dtype)
            total = tl.dot(gradient, w, total, input_precision="ieee")
        # Windows overlap, so add their gradients up.
        mask = (words[:, None] < N) & (k < K) & (k < (C - position) * E)
        to = d_x + position * E + k
        tl.store(to, tl.load(to, mask, 0) + total, mask)
        tl.debug_barrier()  # the next window reads what other threads stored here
