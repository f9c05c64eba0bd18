"""A trainer that writes the files of `elmore train` with scores that depend on its arguments."""

import json
import sys
import textwrap
from pathlib import Path

from elmore.analysis.training.datasets import DATASETS, Files
from elmore.analysis.training.run import Bilm, Plan, RunResult, TrainingRun

TINY = Plan(bilms={"tiny": Bilm("tiny", "hash of tiny")})

_SCRIPT = textwrap.dedent("""
    import json, sys
    from pathlib import Path

    folder, metrics = Path(sys.argv[1]), json.loads(sys.argv[2])
    folder.mkdir(exist_ok=True)
    with (folder.parent.parent / "started.txt").open("a") as file:
        file.write(folder.name + "\\n")
    (folder / "config.toml").touch()
    epoch = {"epoch": 1, "seconds": 1, "dev_seconds": 1, "dev": metrics["scores"]["dev"]}
    (folder / "metrics.jsonl").write_text(json.dumps(epoch) + "\\n")
    (folder / "model.safetensors").write_text("weights")
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "task.json").touch()
""")


def fake_command(
    plan: Plan, run: TrainingRun, files: Files, folder: Path, resources: object, *, resume: bool
) -> list[str]:
    """Return the command of a run; its dev score is 0.5, with ELMo 0.6, plus 0.01 per seed.

    The test score is 0.1 lower. Runs on WNUT-17 fail.
    """
    score = 0.5 + (0.1 if run.bilm else 0) + 0.01 * run.seed
    scores = {"dev": {"f1": score, "accuracy": score}}
    if run.test:
        scores["test"] = {"f1": score - 0.1, "accuracy": score - 0.1}
        scores |= {path.name: scores["test"] for path in files.disturbed}
    if run.dataset == "wnut17":
        return [sys.executable, "-S", "-E", "-c", "raise SystemExit('no memory')"]
    metrics = {
        "task": DATASETS[run.dataset].task,
        "scores": scores,
        "epochs": 1,
        "seconds": 2.0,
        "total_seconds": 3.0,
        "elmo": {"input": {"gamma": 1.0, "weights": [0.2, 0.5, 0.3]}} if run.bilm else {},
        "hardware": "a CPU",
        "torch": "2.0",
        "train": [path.read_text() for path in files.train],
    }
    return [sys.executable, "-S", "-E", "-c", _SCRIPT, str(folder), json.dumps(metrics)]


def write_data(folder: Path, *datasets: str) -> None:
    """Write twenty pairs or sentences to each file of these datasets."""
    for name in datasets:
        is_table = DATASETS[name].form == "table"
        rows = "".join(f"{n}\n" if is_table else f"word{n} O\n\n" for n in range(20))
        for pattern in DATASETS[name].files:
            path = folder / "tasks" / pattern.replace("*", "")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"header\n{rows}" if is_table else rows)


def result(
    dev: float,
    test: float | None = None,
    curve: list[float] | None = None,
    weights: dict[str, list[float]] | None = None,
    perplexity: tuple[float, float] | None = None,
) -> RunResult:
    """Return the result of a run."""
    return RunResult(dev, test, curve or [dev], weights or {}, perplexity)
