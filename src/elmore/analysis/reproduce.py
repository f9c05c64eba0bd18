"""Run evaluations of a model; write one JSON file for each, and a report.

Evaluations that are finished are skipped when the same command runs again.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from elmore.analysis.conditions import changed_conditions, describe_conditions
from elmore.analysis.data_files import checksums, find_file
from elmore.analysis.parts import PARTS, Model, Part
from elmore.analysis.report import render_report
from elmore.analysis.results import NotAvailableError
from elmore.atomic import atomic_file, lock
from elmore.checkpoint.language_model import NoSoftmaxError
from elmore.errors import InputError
from elmore.training.run_folder import write_json

REPORT = "report.md"


class Outcomes(NamedTuple):
    """What `reproduce` has done."""

    records: dict[str, dict[str, Any]]
    """Contents of the JSON files by evaluation, new or from an earlier run."""

    not_run: dict[str, str]
    """Reasons why evaluations were not run: data that are not there, for example."""

    failed: dict[str, str]
    """Errors of evaluations with invalid data."""


def reproduce(
    model: Model,
    parts: Mapping[str, Part],
    data: Path,
    output: Path,
    *,
    show: Callable[[str], None] = lambda _: None,
) -> Outcomes:
    """Run evaluations one by one and write their results to a folder.

    An evaluation is skipped if the folder has its result for the same weights, data, settings and
    version of elmore; a result under other conditions is replaced. An evaluation that fails does
    not stop the others.

    Args:
        model: The model.
        parts: Evaluations by name, see `select_parts`.
        data: Folder of all data.
        output: Folder for the results: `NAME.json` for each evaluation, and `report.md`, which
            includes earlier evaluations of the same weights.
        show: Called with messages about the progress.
    """
    outcomes = Outcomes({}, {}, {})
    with lock(output):
        output.mkdir(exist_ok=True)
        for name, part in parts.items():
            try:
                outcomes.records[name] = _run(name, part, model, data, output, show)
            except (NotAvailableError, NoSoftmaxError) as error:
                outcomes.not_run[name] = str(error)
                show(f"{name}: not run: {error}")
            except (InputError, OSError) as error:
                outcomes.failed[name] = str(error)
                show(f"{name}: failed: {error}")
        _write_report(output, outcomes, model.embedder.weights_hash)
    return outcomes


def _run(
    name: str, part: Part, model: Model, data: Path, output: Path, show: Callable[[str], None]
) -> dict[str, Any]:
    """Return the contents of the JSON file of an evaluation, after running it if necessary."""
    folder, file = data / part.folder, output / f"{name}.json"
    try:
        paths = [find_file(folder, pattern) for pattern in part.files]
    except NotAvailableError as error:
        raise NotAvailableError(f"{error}; source: {part.source}") from None
    conditions = describe_conditions(model.name, model.embedder, checksums(paths, data))
    conditions["precision"] = part.precision or conditions["precision"]
    if file.exists():
        record = _read_record(file)
        changed = changed_conditions(record["conditions"], conditions)
        if not changed:
            show(f"{name}: finished before, skipped")
            return record
        show(f"{name}: running again, because of a different {', '.join(changed)}")
    else:
        show(f"{name}: {part.title}")
    start = time.monotonic()
    result = part.measure(model, folder)
    seconds = round(time.monotonic() - start, 1)
    record = {
        "title": part.title,
        "scores": result.scores,
        "details": result.details,
        "about": part.about,
        "published": part.published,
        "decimals": part.decimals,
        "conditions": {**conditions, "seconds": seconds},
    }
    write_json(file, record)
    return record


def _write_report(output: Path, outcomes: Outcomes, weights_hash: str) -> None:
    """Write a report of these and of earlier evaluations of the same weights."""
    names = (*PARTS, *(file.stem for file in sorted(output.glob("perplexity-*.json"))))
    earlier = {
        name: _read_record(output / f"{name}.json")
        for name in names
        if name not in (*outcomes.records, *outcomes.failed) and (output / f"{name}.json").exists()
    }
    records = outcomes.records | {
        name: record
        for name, record in earlier.items()
        if record["conditions"].get("weights_hash") == weights_hash
    }
    problems = {
        f"{name} ({kind})": reason
        for kind, reasons in (("not run", outcomes.not_run), ("failed", outcomes.failed))
        for name, reason in reasons.items()
        if name not in records
    }
    if records:
        with atomic_file(output / REPORT) as temporary:
            temporary.write_text(render_report(records, problems), encoding="utf-8")


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = dict(json.loads(path.read_text(encoding="utf-8")))
        return {**record, "conditions": dict(record["conditions"])}
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is damaged ({error}); delete it to measure again") from error
