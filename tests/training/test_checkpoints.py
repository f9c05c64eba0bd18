"""Training checkpoints. Oracles: the tensors before writing; an optimizer that was not saved."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from elmore.errors import InputError
from elmore.training.checkpoints import (
    Checkpoint,
    EarlierVersionError,
    checkpoint_files,
    optimizer_tensors,
    read_checkpoint,
    restore_optimizer,
    write_checkpoint,
)

TENSORS = {"a.x": torch.randn(3, 4), "a.y": torch.arange(5), "b": torch.tensor(2.5)}


def test_checkpoint_is_read_back(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 7, Checkpoint(TENSORS, {"step": 7}))
    checkpoint = read_checkpoint(path)
    assert checkpoint.metadata == {"step": 7}
    assert all(torch.equal(checkpoint.tensors[name], TENSORS[name]) for name in TENSORS)
    assert set(checkpoint.part("a")) == {"x", "y"}


def test_only_the_two_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (1, 20, 3000):
        write_checkpoint(tmp_path, step, Checkpoint(TENSORS, {}))
    assert [path.name for path in checkpoint_files(tmp_path)] == [
        "step-000000020.safetensors", "step-000003000.safetensors",
    ]  # fmt: skip


def test_flipped_bit_is_detected(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 1, Checkpoint(TENSORS, {}))
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    with pytest.raises(InputError, match="checksum does not match"):
        read_checkpoint(path)


@pytest.mark.parametrize("size", [0, 5, -1])
def test_truncation_is_detected(tmp_path: Path, size: int) -> None:
    path = write_checkpoint(tmp_path, 1, Checkpoint(TENSORS, {}))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match="is not a complete checkpoint"):
        read_checkpoint(path)


# Headers of the formats before the current one
EARLIER_HEADERS = [
    {"facts": "{}", "sum": "123"},
    {"metadata": "{}", "checksum": "123"},
    {"metadata": "{}", "checksum": "123", "format": "2"},
]


@pytest.mark.parametrize("header", [*EARLIER_HEADERS, None])
def test_checkpoint_of_an_earlier_version_is_not_called_damaged(
    tmp_path: Path, header: dict[str, str] | None
) -> None:
    save_file(TENSORS, tmp_path / "step-000000001.safetensors", header)
    with pytest.raises(
        EarlierVersionError, match=r"earlier version of elmore.*Start the run again"
    ):
        read_checkpoint(tmp_path / "step-000000001.safetensors")


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adagrad])
def test_restored_optimizer_continues_identically(kind) -> None:
    def steps(model: nn.Linear, optimizer: torch.optim.Optimizer, count: int) -> None:
        for i in range(count):
            optimizer.zero_grad()
            model(torch.full((2, 3), float(i))).square().sum().backward()
            optimizer.step()

    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = kind(model.parameters(), lr=0.1)
    steps(model, optimizer, 3)
    restored = nn.Linear(3, 2)
    restored.load_state_dict(model.state_dict())
    resumed = kind(restored.parameters(), lr=0.1)
    restore_optimizer(resumed, {k: v.clone() for k, v in optimizer_tensors(optimizer).items()})
    steps(model, optimizer, 3)
    steps(restored, resumed, 3)
    assert torch.equal(model.weight, restored.weight)
