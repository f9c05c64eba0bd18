"""Results of evaluations to one HTML page that needs no other file and no network."""

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from elmore.analysis.report import (
    DATA,
    LISTS,
    NO_RESULT,
    NOTES,
    QUICK,
    evaluations_by_file,
    is_quick,
    render_conditions,
    render_details,
    render_title,
    split_notes,
    table_rows,
)

_STYLE = """
:root { color-scheme: light; }
body { font: 1rem/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1, h2, h3 { line-height: 1.2; }
h3 { font-size: 1rem; margin-bottom: .5rem; }
h3 + ul { margin-top: 0; }
h2 { margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem; }
.quick { background: #fff3cd; border: 1px solid #b58900; padding: .75rem; font-weight: bold; }
/* The shadows show that a wide table or figure can be scrolled; white covers them at its ends. */
.wide { overflow-x: auto; background:
  linear-gradient(to right, #fff 40%, #fff0) left / 2rem 100% no-repeat local,
  linear-gradient(to left, #fff 40%, #fff0) right / 2rem 100% no-repeat local,
  linear-gradient(to right, #0004, #0000) left / .7rem 100% no-repeat scroll,
  linear-gradient(to left, #0004, #0000) right / .7rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem;
  overflow-wrap: normal; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: left;
  vertical-align: top; }
thead th { border-bottom: 2px solid #666; }
tbody th { font-weight: normal; position: sticky; left: 0; background: #fff; min-width: 5rem; }
figure { margin: 1.5rem 0; }
/* Multiplied with the background, so that white does not hide the shadows. */
figure svg { display: block; min-width: 30rem; max-width: 100%; height: auto; overflow: visible;
  mix-blend-mode: multiply; }
figcaption, .conditions { font-size: .85rem; color: #444; }
code { font-size: .9em; }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  .wide { overflow: visible; background: none; }
  tbody th { position: static; min-width: 3rem; }
  figure svg { min-width: 0; max-width: 100%; max-height: 10cm; }
  table { font-size: 8pt; }
  th, td { padding: .15rem .3rem; }
  tr, figure { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
"""

_SPREAD, _UNBROKEN = " ± ", "&nbsp;±&nbsp;"
_LINK = re.compile(r"https?://[^\s,;<>)]*[^\s,;<>).]")
_CODE = re.compile(r"`([^`]+)`")
_FILE_LINK = re.compile(r"\[(`[^`]+`)\]\(([\w./-]+)\)")
"""A link to another file of the report."""


def render_html(
    records: Mapping[str, dict[str, Any]], problems: Mapping[str, str], folder: Path
) -> str:
    """Return the page.

    Args:
        records: Contents of the JSON files by evaluation, see `reproduce`.
        problems: Reasons why other evaluations have no result.
        folder: Folder of the figures, which become part of the page.
    """
    title, subtitle = render_title(records)
    records, notes = split_notes(records)
    lists = {
        ("notes", NOTES): [_text(note) for note in notes],
        ("no-result", NO_RESULT): [_text(f"{name}: {why}") for name, why in problems.items()],
        ("data", DATA): [
            f"<code>{escape(file)}</code> {sha256} ({escape(', '.join(names))})"
            for (file, sha256), names in evaluations_by_file(records).items()
        ],
    }
    titles = {name: record["title"] for name, record in records.items()}
    titles |= {name: heading for (name, heading), lines in lists.items() if lines}
    contents = (
        f'<li><a href="#{escape(name)}">{_text(heading)}</a></li>'
        for name, heading in titles.items()
    )
    body = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="quick">{QUICK}</p>' if is_quick(records) else "",
        f"<p>{_text(subtitle)}</p>",
        f"<nav><ul>{''.join(contents)}</ul></nav>",
        *("\n".join(_section(name, record, folder)) for name, record in records.items()),
        *(
            f'<section id="{name}"><h2>{heading}</h2>{_list(lines)}</section>'
            for (name, heading), lines in lists.items()
            if lines
        ),
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title>",
            f"<style>{_STYLE}</style></head>",
            "<body>",
            *filter(None, body),
            "</body></html>\n",
        ]
    )


def _section(name: str, record: dict[str, Any], folder: Path) -> Iterator[str]:
    yield f'<section id="{escape(name)}"><h2>{_text(record["title"])}</h2>'
    yield f"<p>{_text(record['about'])}</p>"
    yield _table(record)
    for figure in record.get("figures", ()):
        path, caption = folder / figure["file"], _text(figure["caption"])
        if path.is_file():
            image = f'<svg role="img" aria-label="{escape(figure["caption"])}"'
            svg = path.read_text(encoding="utf-8").replace("<svg", image, 1)
            wide = f'<div class="wide" tabindex="0">{svg}</div>'
            yield f"<figure>{wide}<figcaption>{caption}</figcaption></figure>"
    for key, heading in LISTS.items():
        if lines := record.get(key):
            yield f"<h3>{heading}</h3>"
            yield _list(map(_text, lines))
    if details := render_details(record["details"]):
        yield f"<p>{_text(details)}</p>"
    if record["published"]:
        yield f"<p>Published: {_text(record['published'])}</p>"
    yield f'<p class="conditions">{_text(render_conditions(name, record))}</p>'
    yield "</section>"


def _list(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _table(record: dict[str, Any]) -> str:
    header, *rows = table_rows(record)
    head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{_text(name)}</th>'
        f"{''.join(f'<td>{_text(cell).replace(_SPREAD, _UNBROKEN)}</td>' for cell in cells)}</tr>"
        for name, *cells in rows
    )
    # Focusable, so that a keyboard can scroll a wide table.
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _text(text: str) -> str:
    """Return text as HTML, with `code` and links."""
    linked = _FILE_LINK.sub(r'<a href="\2">\1</a>', escape(text))
    marked = _CODE.sub(r"<code>\1</code>", linked)
    return _LINK.sub(lambda match: f'<a href="{match[0]}">{match[0]}</a>', marked)
