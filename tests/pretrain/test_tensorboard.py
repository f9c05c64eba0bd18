"""TensorBoard logs of pre-training. Oracle: metrics.jsonl, by TensorBoard's own reader."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from elmore.pretrain.config import PretrainConfig
from elmore.pretrain.run import pretrain


class KilledError(Exception):
    """Ends a run without a checkpoint, as `kill -9` does."""


def test_logs_equal_the_metrics_also_after_a_kill(
    text: Path, tmp_path: Path, config: PretrainConfig
) -> None:
    """The resumed run repeats steps whose events were written before the kill."""
    training = replace(config.training, epochs=1)
    config = replace(config, training=training, run=replace(config.run, tensorboard=True))

    def kill(record: dict[str, Any]) -> None:
        if record.get("step", 0) >= 10:
            raise KilledError

    arguments = {"cache": tmp_path / "c", "workers": 1, "device": "cpu"}
    with pytest.raises(KilledError):
        pretrain([text], tmp_path / "run", config, report=kill, **arguments)
    pretrain([text], tmp_path / "run", config, resume=True, **arguments)

    assert len(list((tmp_path / "run").glob("events.out.tfevents.*"))) == 2
    events = EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    for name in ("loss", "lr", "tokens_per_second"):
        expected = [(r["step"], pytest.approx(r[name])) for r in metrics if name in r]
        assert [(event.step, event.value) for event in events.Scalars(name)] == expected
    heldout = [
        (r["step"], pytest.approx(r["heldout"]["average"])) for r in metrics if "heldout" in r
    ]
    actual = [(event.step, event.value) for event in events.Scalars("heldout/average")]
    assert actual == heldout
