"""Captured CUDA graphs. Oracle: the function without a graph. On a CPU, captures are stubs."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from elmore.bilm.kernels.graphs import CapturedFunction

needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class TestGraphCache:
    @pytest.fixture(autouse=True)
    def captured(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, torch.dtype]]:
        """The size and dtype of the first input of each capture."""
        captured = []

        def capture(self: CapturedFunction, tensors: Sequence[Tensor]) -> object:
            captured.append((len(tensors[0]), tensors[0].dtype))
            return lambda *_: ("replayed",)

        monkeypatch.setattr(CapturedFunction, "_capture", capture)
        return captured

    def test_shape_is_captured_after_its_warm_up_calls(self, captured: list) -> None:
        run = CapturedFunction(lambda x: [x + 1], warm_up=2)
        results = [run(torch.zeros(1))[0] for _ in range(4)]
        assert results == [1, 1, "replayed", "replayed"]
        assert captured == [(1, torch.float32)]

    def test_each_combination_of_shapes_and_dtypes_is_captured_once(self, captured: list) -> None:
        run = CapturedFunction(lambda *_: [], warm_up=0)
        one, two, integer = torch.zeros(1), torch.zeros(2), torch.zeros(1, dtype=torch.int64)
        for _ in range(2):
            for inputs in ([one, one], [one, two], [one, integer], [integer, one]):
                run(*inputs)
        assert len(captured) == 4

    def test_least_recently_used_graph_is_dropped(self, captured: list) -> None:
        run = CapturedFunction(lambda x: [x], warm_up=0, max_graphs=2)
        for size in (1, 2, 1, 3, 1, 2):
            run(torch.zeros(size))
        assert [size for size, _ in captured] == [1, 2, 3, 2]


class TestOnGpu:
    pytestmark = needs_gpu

    def test_results_equal_those_without_a_graph(self) -> None:
        def run(x: Tensor, y: Tensor) -> list[Tensor]:
            hidden = (x @ x.mT).softmax(dim=-1)  # a temporary tensor, whose memory is reused
            return [hidden @ x, y[1:].T, x[0] > 0]  # also a view, and booleans

        captured = CapturedFunction(run, max_graphs=3)
        for round_ in range(4):
            for size in (300, 20, 1000, 7):  # one size more than max_graphs
                x = torch.randn(size, 64, device="cuda", dtype=torch.bfloat16)
                y = torch.randint(round_ + 5, (size, 3), device="cuda")
                for actual, expected in zip(captured(x, y), run(x, y), strict=True):
                    torch.testing.assert_close(actual, expected)

    def test_graphs_share_one_memory_pool(self) -> None:
        captured = CapturedFunction(lambda x: [x * 2, x.sort().values], warm_up=0)
        largest = torch.ones(2**24, device="cuda")
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        captured(largest)
        after_one = torch.cuda.memory_reserved()
        for size in range(1, 16):
            captured(largest[: -1024 * size])
        assert after_one - before >= 3 * largest.nbytes
        assert torch.cuda.memory_reserved() - before < 1.1 * (after_one - before)

    def test_random_numbers_depend_on_the_seed_as_without_a_graph(self) -> None:
        generator = torch.Generator("cuda")

        def draw(x: Tensor) -> list[Tensor]:
            return [torch.rand_like(x), torch.empty_like(x).exponential_(generator=generator)]

        def seeded(run: object, seed: int) -> list[Tensor]:
            torch.manual_seed(seed)
            generator.manual_seed(seed)
            return [y.clone() for y in run(torch.zeros(100, device="cuda"))]

        captured = CapturedFunction(draw, [generator])
        for seed in (1, 2, 3, 2):
            assert all(map(torch.equal, seeded(captured, seed), seeded(draw, seed)))
