"""Answers for people: text with marks in color, as rich's markup."""

from collections.abc import Iterable, Sequence

from elmore.tasks.spans import Span

_COLORS = ("green", "yellow", "cyan", "magenta", "blue", "red")


def mark_spans(tokens: Sequence[str], spans: Iterable[Span]) -> str:
    """Put labeled brackets around spans, which may nest: [PER Ada Lovelace] wrote ."""
    # From the inside out: brackets of a wider span go around those that are there.
    spans = sorted(spans, key=lambda span: span.end - span.start)
    words = [escape(token) for token in tokens]
    for span in spans:
        color = color_of(span.label)
        words[span.start] = f"[{color}]\\[[bold]{escape(span.label)}[/bold] {words[span.start]}"
        words[span.end - 1] += f"][/{color}]"
    return " ".join(words)


def color_of(label: str) -> str:
    """Return a color that is always the same for a label."""
    return _COLORS[sum(label.encode()) % len(_COLORS)]


def escape(text: str) -> str:
    """Return text that rich prints as it is."""
    from rich.markup import escape as escape_markup

    return escape_markup(text)
