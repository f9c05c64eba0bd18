"""Results of evaluations to a report in Markdown."""

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from elmore.analysis.results import Cell

LISTS = {"findings": "Findings", "notes": "Notes"}
"""Headings of the lists of sentences in a record."""

NOTES, NO_RESULT, DATA = "Notes on several evaluations", "No result", "Data (SHA-256)"
"""Headings at the end of the report."""

_COMMIT = re.compile(r"\b([0-9a-f]{10})[0-9a-f]{30}\b")

QUICK = (
    "Quick run: small samples of the data, few epochs, one seed, and fewer datasets in some "
    "tables. It shows that everything works; its scores say nothing about the model."
)


def render_report(records: Mapping[str, dict[str, Any]], problems: Mapping[str, str]) -> str:
    """Return a report.

    Args:
        records: Contents of the JSON files by evaluation, see `reproduce`.
        problems: Reasons why other evaluations have no result.
    """
    title, subtitle = render_title(records)
    records, notes = split_notes(records)
    sections = [
        f"# {title}",
        *(f"**{QUICK}**" for _ in range(is_quick(records))),
        subtitle,
        *(_render_section(name, record) for name, record in records.items()),
    ]
    lists = {
        NOTES: notes,
        NO_RESULT: [f"{name}: {reason}" for name, reason in problems.items()],
        DATA: [
            f"`{file}` {sha256} ({', '.join(names)})"
            for (file, sha256), names in evaluations_by_file(records).items()
        ],
    }
    sections += [_render_list(f"## {title}", lines) for title, lines in lists.items() if lines]
    return "\n\n".join(sections) + "\n"


def split_notes(
    records: Mapping[str, dict[str, Any]],
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the records without the notes that several of them share, and the shared notes."""
    counts = Counter(note for record in records.values() for note in record["notes"])
    shared = [note for note, count in counts.items() if count > 1]
    own = {
        name: {**record, "notes": [note for note in record["notes"] if note not in shared]}
        for name, record in records.items()
    }
    return own, shared


def evaluations_by_file(records: Mapping[str, dict[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """Return the names of the evaluations that read a file, by its name and its checksum."""
    files: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, record in records.items():
        for file in record["conditions"]["data"].items():
            files[file].append(name)
    return files


def render_title(records: Mapping[str, dict[str, Any]]) -> tuple[str, str]:
    """Return the title of a report, and a sentence on the model and the files."""
    [first, *_] = records.values()
    conditions = first["conditions"]
    runs = (
        " [`runs/`](runs/) has those of each training run."
        if any("runs" in record for record in records.values())
        else ""
    )
    return f"Evaluation of the model {conditions['model']}", (
        f"Hash of its weights: {conditions['weights_hash']}. Each JSON file in this folder has the "
        f"scores and the conditions of an evaluation.{runs}"
    )


def is_quick(records: Mapping[str, dict[str, Any]]) -> bool:
    """Return whether the results are those of a quick run."""
    return any(record["conditions"].get("quick", False) for record in records.values())


def render_table(record: dict[str, Any]) -> str:
    """Return the scores of an evaluation as a Markdown table."""
    header, *rows = ([cell.replace("|", "\\|") for cell in row] for row in table_rows(record))
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def table_rows(record: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the header and the rows of a table as text; scores of seeds become mean +- deviation.

    Columns are in the order in which the rows first have them.
    """
    scores, decimals = record["scores"], record["decimals"]
    columns = list(dict.fromkeys(column for row in scores.values() for column in row))
    yield ["", *columns]
    for name, row in scores.items():
        yield [name, *(_render_cell(row.get(column, ""), decimals) for column in columns)]


def _render_cell(cell: Cell, decimals: int) -> str:
    match cell:
        case str():
            return cell
        case []:
            return ""
        case list():
            mean = f"{statistics.mean(cell):.{decimals}f}"
            return f"{mean} ± {statistics.stdev(cell):.{decimals}f}" if len(cell) > 1 else mean
    return f"{cell:.{decimals}f}"


def render_conditions(name: str, record: dict[str, Any]) -> str:
    """Return a line on how an evaluation was measured."""
    conditions = record["conditions"]
    measured = ", ".join(
        f"{label} {conditions[key]}"
        for label, key in (
            ("elmore", "elmore"),
            ("commit", "commit"),
            ("torch", "torch"),
            ("biLM computed in" if "runs" in record else "computed in", "precision"),
            ("on", "device"),
        )
        if conditions[key] is not None
    )
    duration, count = f"{conditions['seconds']:,.0f} s", len(record.get("runs", ()))
    if count:
        duration = f"{count} training run{'s' * (count != 1)}, {duration} in total"
    quick = "quick run, " if conditions.get("quick") else ""
    shortened = _COMMIT.sub(r"\1", measured)
    return f"[`{name}.json`]({name}.json): {quick}{shortened}, {duration}."


def render_details(details: Mapping[str, Any]) -> str:
    """Return details as one sentence; an empty string if there are none."""
    parts = "; ".join(f"{name}: {_render_value(value)}" for name, value in details.items())
    return f"{parts[0].upper()}{parts[1:]}." if parts else ""


def _render_section(name: str, record: dict[str, Any]) -> str:
    paragraphs = [
        f"## {record['title']}",
        record["about"],
        render_table(record),
        *(
            f"![{figure['caption']}]({figure['file']})\n\n*{figure['caption']}*"
            for figure in record.get("figures", ())
        ),
        *(
            _render_list(f"### {heading}", record[key])
            for key, heading in LISTS.items()
            if record.get(key)
        ),
        render_details(record["details"]),
        f"Published: {record['published']}" if record["published"] else "",
        render_conditions(name, record),
    ]
    return "\n\n".join(filter(None, paragraphs))


def _render_list(heading: str, lines: Iterable[str]) -> str:
    return "\n".join([heading, "", *(f"- {line}" for line in lines)])


def _render_value(value: Any) -> str:
    match value:
        case dict():
            return ", ".join(f"{name} {_render_value(v)}" for name, v in value.items())
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.3f}"
    return str(value)
