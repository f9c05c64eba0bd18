"""Results of evaluations to a report in Markdown."""

from collections.abc import Mapping
from typing import Any


def render_report(records: Mapping[str, dict[str, Any]], problems: Mapping[str, str]) -> str:
    """Return a report.

    Args:
        records: Contents of the JSON files by evaluation, see `reproduce`.
        problems: Reasons why other evaluations have no result.
    """
    [first, *_] = records.values()
    conditions = first["conditions"]
    sections = [
        f"# Evaluation of {conditions['model']}",
        f"Weights {conditions['weights_hash']}. Each JSON file in this folder has the scores of an "
        "evaluation at full precision, and its conditions.",
        *(_render_section(name, record) for name, record in records.items()),
    ]
    if problems:
        lines = (f"- {name}: {reason}" for name, reason in problems.items())
        sections.append("\n".join(["## No result", "", *lines]))
    return "\n\n".join(sections) + "\n"


def render_table(record: dict[str, Any]) -> str:
    """Return the scores of an evaluation as a Markdown table."""
    scores, decimals = record["scores"], record["decimals"]
    columns = list(dict.fromkeys(column for row in scores.values() for column in row))
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for name, row in scores.items():
        cells = (_render_score(row.get(column, ""), decimals) for column in columns)
        lines.append([name, *cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _render_score(score: float | str, decimals: int) -> str:
    if isinstance(score, str):
        return score.replace("|", "\\|")
    return f"{score:.{decimals}f}"


def _render_section(name: str, record: dict[str, Any]) -> str:
    conditions = record["conditions"]
    files = "".join(f"\n- `{file}` {sha256}" for file, sha256 in conditions["data"].items())
    measured = ", ".join(
        f"{label} {conditions[key]}"
        for label, key in (
            ("elmore", "elmore"),
            ("commit", "commit"),
            ("torch", "torch"),
            ("precision", "precision"),
            ("on", "device"),
            ("seed", "seed"),
            ("seconds:", "seconds"),
        )
        if conditions[key] is not None
    )
    paragraphs = [
        f"## {record['title']}",
        record["about"],
        render_table(record),
        f"{_render_details(record['details'])}.",
        f"Published: {record['published']}" if record["published"] else "",
        f"`{name}.json`: {measured}. Data (SHA-256):\n{files}",
    ]
    return "\n\n".join(filter(None, paragraphs))


def _render_details(details: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {_render_value(value)}" for name, value in details.items())


def _render_value(value: Any) -> str:
    match value:
        case dict():
            return ", ".join(f"{name} {_render_value(v)}" for name, v in value.items())
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.3f}"
    return str(value)
