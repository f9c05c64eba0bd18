"""Predictions for a terminal: text with colored spans, in rich's markup."""

from collections.abc import Iterable, Sequence

from rich.markup import escape

from elmore.tasks.spans import LabeledSpan

_COLORS = ("green", "yellow", "cyan", "magenta", "blue", "red")


def mark_spans(tokens: Sequence[str], spans: Iterable[LabeledSpan]) -> str:
    """Put labeled brackets around spans, which may be nested: [PER Ada Lovelace] wrote ."""
    # Shortest first: the brackets of a longer span go around those of the shorter ones in it.
    spans = sorted(spans, key=lambda span: span.end - span.start)
    words = [escape(token) for token in tokens]
    for span in spans:
        color = color_of(span.label)
        words[span.start] = f"[{color}]\\[[bold]{escape(span.label)}[/bold] {words[span.start]}"
        words[span.end - 1] += f"][/{color}]"
    return " ".join(words)


def color_of(label: str) -> str:
    """Return the color of a label, which is the same in every run."""
    return _COLORS[sum(label.encode()) % len(_COLORS)]
