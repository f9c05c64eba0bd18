"""Output for a terminal: text with colored spans, in rich's markup, and tables of scores."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from elmore.tasks.spans import LabeledSpan

_MAX_LABELS = 40
"""Maximum number of labels in a table of scores."""
_MAX_COLUMNS = 20
"""Maximum number of labels in a confusion matrix, and of confusions in a list."""
_COLORS = ("green", "yellow", "cyan", "magenta", "blue", "red")


def mark_spans(tokens: Sequence[str], spans: Iterable[LabeledSpan]) -> str:
    """Put labeled brackets around spans, which may be nested: [PER Ada Lovelace] wrote ."""
    # Longest first: the brackets of a longer span go around those of the shorter ones in it.
    spans = sorted(spans, key=lambda span: span.start - span.end)
    starts = dict[int, int]()
    marked = Text()
    for i, token in enumerate(tokens):
        marked.append(" " if i else "")
        for number, span in enumerate(spans):
            if span.start == i:
                starts[number] = len(marked)
                marked.append("[").append(span.label, "bold").append(" ")
        marked.append(token)
        for number, span in reversed(list(enumerate(spans))):
            if span.end == i + 1:
                marked.append("]")
                marked.stylize(color_of(span.label), starts[number])
    return marked.markup


def color_of(label: str) -> str:
    """Return the color of a label, which is the same in every run."""
    return _COLORS[sum(label.encode()) % len(_COLORS)]


def show_epoch(record: Mapping[str, Any]) -> str:
    """Return one line with the metrics of an epoch, or the text of a note."""
    if "note" in record:
        return str(record["note"])
    main = dict(islice(record["dev"].items(), 4))
    return (
        f"epoch {record['epoch']:3}  loss {record['loss']:8.4f}  dev {show_scores(main)}"
        f"  {record['seconds']:.1f} s"
    )


def show_scores(scores: Mapping[str, float]) -> str:
    """Return one line of scores as percentages."""
    return "  ".join(f"{name} {100 * score:.2f}" for name, score in scores.items())


def show_report(report: Mapping[str, Any]) -> str:
    """Return scores and tables of the scores by metric, of the labels and of the confusions.

    Args:
        report: As returned by `TrainedTask.report`. Scores such as `muc_precision`, `muc_recall`
            and `muc_f1` become one row of a table.
    """
    scores: dict[str, float] = {}
    metrics: dict[str, dict[str, Any]] = {}
    parts = ("precision", "recall", "f1")
    for name, score in report.items():
        metric, _, part = name.rpartition("_")
        row = {other: report.get(f"{metric}_{other}") for other in parts}
        if part in parts and None not in row.values():
            metrics[metric] = row
        elif name not in ("by_label", "confusion"):
            scores[name] = score
    tables = [
        _table(metrics),
        _label_table(report.get("by_label", {})),
        _confusion_table(report.get("confusion", {})),
    ]
    return "\n\n".join([show_scores(scores), *filter(None, tables)])


def _label_table(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Return the scores of each label or, if there are many, of the most frequent ones."""
    by_support = sorted(rows, key=lambda label: -rows[label]["support"])
    shown = set(by_support[:_MAX_LABELS])
    table = _table({label: row for label, row in rows.items() if label in shown})
    hidden = len(rows) - len(shown)
    return f"{table}\n({hidden:,} less frequent labels are not shown)" if hidden else table


def _confusion_table(matrix: Mapping[str, Mapping[str, int]]) -> str:
    """Return a confusion matrix or, if there are many labels, the most frequent confusions."""
    if len(matrix) <= _MAX_COLUMNS:
        return _table(matrix, "gold \\ predicted")
    errors = [
        (count, f"{label} \\ {other}")
        for label, row in matrix.items()
        for other, count in row.items()
        if count and label != other
    ]
    errors.sort(key=lambda error: -error[0])
    return _table({pair: {"count": n} for n, pair in errors[:_MAX_COLUMNS]}, "gold \\ predicted")


def _table(rows: Mapping[str, Mapping[str, float]], corner: str = "") -> str:
    """Align rows in columns; fractions are shown as percentages, counts as they are."""
    if not rows:
        return ""
    columns = list(next(iter(rows.values())))
    cells = [[corner, *columns]]
    for name, row in rows.items():
        numbers = (row[column] for column in columns)
        cells.append([name, *(str(n) if isinstance(n, int) else f"{100 * n:.2f}" for n in numbers)])
    first, *widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join([name + " " * (first - cell_len(name)), *map(_align_right, values, widths)])
        for name, *values in cells
    )


def _align_right(cell: str, width: int) -> str:
    return " " * (width - cell_len(cell)) + cell  # not rjust: Hangul, for example, is twice as wide
