"""Records of finished training runs: one small JSON file for each, `runs/NAME.json`."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import elmore
from elmore.analysis.conditions import source_commit
from elmore.analysis.data_files import checksums
from elmore.analysis.training.datasets import Files
from elmore.analysis.training.run import Plan, TrainingRun
from elmore.errors import InputError, as_input_error
from elmore.schema import read_json, write_json
from elmore.tasks import get_task
from elmore.tasks.domain import FOLDER as FINETUNED_BILM
from elmore.training.run_folder import RunFolder

RUNS = "runs"
_IDENTITY = ("config", "weights_hash", "elmore", "data", "vectors", "quick")


class Records:
    """The records in a folder.

    Args:
        folder: The folder.
        plan: The plan of the runs.
        files: Files of each dataset.
        data: Folder of all data.
        vectors: File of word vectors.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        files: Mapping[str, Files],
        data: Path,
        vectors: Path | None,
    ) -> None:
        self._folder, self._plan = folder, plan
        self._vectors_name = vectors.name if vectors else None
        self._vectors = checksums([vectors], data) if vectors else None
        self._checksums = cache(lambda dataset: checksums(_distinct(files[dataset]), data))

    def read(self, run: TrainingRun) -> dict[str, Any] | None:
        """Return the record of a run; None if there is none for these data, settings and biLM."""
        path = self._path(run)
        try:
            record = read_json(path, "a training run")
            conditions, before = record["conditions"], record["run"]
            has_scores = run.test <= before["test"] and run.disturbed <= before["disturbed"]
        except (InputError, KeyError, TypeError):  # damaged ones are replaced
            return None
        now = self._conditions(run)
        changed = any(conditions.get(name) != now[name] for name in _IDENTITY)
        return None if changed or not has_scores else record

    def identity(self, run: TrainingRun) -> str:
        """Return what the record of a run depends on, as JSON.

        Unfinished runs depend on the commit, too, because a record names a single commit.
        """
        conditions = self._conditions(run)
        identity = {name: conditions[name] for name in (*_IDENTITY, "commit")}
        return json.dumps({**identity, "test": run.test, "disturbed": run.disturbed})

    def write(self, run: TrainingRun, folder: Path) -> dict[str, Any]:
        """Write and return the record of a run that has finished in this folder."""
        metrics = read_json(folder / "metrics.json", "the metrics of a run")
        score = get_task(metrics["task"]).score_name
        finetuned = folder / FINETUNED_BILM / "summary.json"
        perplexity = None
        if finetuned.exists():
            summary = read_json(finetuned, "the summary of fine-tuning")
            perplexity = {
                "before": summary["before"]["average"],
                "after": summary["heldout"]["average"],
            }
        records = RunFolder(folder, "task.json").read_metrics("epoch")
        message = f"{folder}/metrics.jsonl lacks an epoch; run the command again to repeat this run"
        with as_input_error(message, KeyError, TypeError):
            dev_scores = {record["epoch"]: record["dev"][score] for record in records}
            curve = [dev_scores[epoch] for epoch in range(1, metrics["epochs"] + 1)]
        conditions = {
            **self._conditions(run),
            "torch": metrics.pop("torch"),
            "hardware": metrics.pop("hardware"),
            # of a resumed run: of all epochs, without the startup of earlier processes
            "seconds": round(max(metrics["total_seconds"], metrics["seconds"]), 1),
        }
        record = {
            "run": {**asdict(run), "settings": dict(run.settings)},
            "metrics": metrics,
            "dev_scores": curve,
            "perplexity": perplexity,
            "conditions": conditions,
        }
        write_json(self._path(run), record)
        return record

    def _path(self, run: TrainingRun) -> Path:
        return self._folder / f"{run.name}.json"

    def _conditions(self, run: TrainingRun) -> dict[str, Any]:
        config = asdict(self._plan.config(run))
        config["words"]["vectors"], config["elmo"]["model"] = self._vectors_name, run.bilm
        return {
            "config": json.loads(json.dumps(config)),  # tuples become lists, as in the file
            "weights_hash": self._plan.encoder(run.bilm).weights_hash if run.bilm else None,
            "elmore": elmore.__version__,
            "commit": source_commit(),
            "data": self._checksums(run.dataset),
            "vectors": self._vectors,
            "quick": self._plan.quick,
        }


def _distinct(files: Files) -> list[Path]:
    return list(dict.fromkeys((*files.train, files.dev, files.test)))
