"""The HTML page. Oracle: Python's HTML parser."""

import re
from html.parser import HTMLParser
from pathlib import Path

from elmore.analysis.html import render_html
from elmore.analysis.report import QUICK, render_report

_VOID = {"meta"}


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags are balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, *attribute) for attribute in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1], data.strip()))


def record(**changes) -> dict:
    return {
        "title": "Table 1: a < b & c",
        "scores": {
            "SICK": {"baseline": [76.0, 78.0], "paper": "the | same"},
            "WNUT": {"baseline": [], "x": 1.0},
        },
        "details": {"test words": 1234, "scored as `<UNK>`": "3 %"},
        "notes": ["See https://example.org/data. The file is `a.json`."],
        "figures": [{"file": "plot.svg", "caption": 'A "plot".'}],
        "about": "Scores.",
        "published": "Nothing.",
        "decimals": 1,
        "runs": ["sick-baseline-0"],
        "conditions": {
            "model": "tiny", "weights_hash": "abc", "elmore": "1", "commit": None, "torch": "2",
            "precision": "fp32", "device": "CPU", "seconds": 3, "data": {"f": "sha"},
        } | changes,
    }  # fmt: skip


def render(tmp_path: Path, **changes) -> tuple[Page, str]:
    (tmp_path / "plot.svg").write_text('<svg viewBox="0 0 1 1"><g></g></svg>')
    html = render_html({"table1": record(**changes)}, {"wic (not run)": "no <data>"}, tmp_path)
    return Page(html), html


def test_page_has_the_tables_figures_and_notes(tmp_path: Path) -> None:
    page, _ = render(tmp_path)
    cells = [text for tag, text in page.texts if tag == "td"]
    assert [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in cells] == [
        "77.0 ± 1.4",
        "the | same",
        "1.0",
    ]
    assert ("h2", "Table 1: a < b & c") in page.texts
    assert ("h3", "Notes") in page.texts
    assert ("h3", "Findings") not in page.texts
    assert ("code", "a.json") in page.texts
    assert ("code", "<UNK>") in page.texts
    assert ("a", "href", "https://example.org/data") in page.attributes
    assert ("svg", "aria-label", 'A "plot".') in page.attributes
    assert ("figcaption", 'A "plot".') in page.texts
    assert ("li", "wic (not run): no <data>") in page.texts
    assert any(text.endswith("1 training run, 3 s in total.") for _, text in page.texts)
    assert ("a", "href", "#no-result") in page.attributes
    assert ("a", "href", "runs/") in page.attributes
    assert ("code", "runs/") in page.texts


def test_page_needs_no_other_file(tmp_path: Path) -> None:
    page, html = render(tmp_path)
    assert not [a for a in page.attributes if a[1] in ("src", "srcset") or a[0] == "link"]
    assert not re.search(r"@import|url\(", html)
    anchors = {value for tag, name, value in page.attributes if name == "id"}
    links = {v for tag, name, v in page.attributes if name == "href" and v.startswith("#")}
    assert {link.removeprefix("#") for link in links} <= anchors


def test_quick_results_are_labeled(tmp_path: Path) -> None:
    assert ("p", QUICK) in render(tmp_path, quick=True)[0].texts
    assert ("p", QUICK) not in render(tmp_path)[0].texts
    text = render_report({"table1": record(quick=True)}, {})
    assert f"**{QUICK}**" in text
    assert (
        "[`table1.json`](table1.json): quick run, elmore 1," in text
    )  # also where one table is quoted
    assert "quick run" not in render_report({"table1": record()}, {})


def test_markdown_has_the_same_tables_and_figures() -> None:
    lines = render_report({"table1": record()}, {}).splitlines()
    assert "| SICK | 77.0 ± 1.4 | the \\| same |  |" in lines
    assert "### Notes" in lines
    assert "Test words: 1,234; scored as `<UNK>`: 3 %." in lines
    assert '![A "plot".](plot.svg)' in lines


def test_commits_are_shortened_and_keep_their_suffix() -> None:
    commit = f"{'0123456789abcdef' * 2}01234567-dirty"
    text = render_report({"table1": record(commit=commit)}, {})
    assert "commit 0123456789-dirty, torch 2" in text


def test_common_notes_and_data_files_are_listed_once_at_the_end(tmp_path: Path) -> None:
    shared, own = "Word vectors: GloVe.", "The biLM is frozen."
    first = record(data={"f": "sha", "g": "sha2"}) | {"notes": [own, shared]}
    records = {"table1": first, "table2": record() | {"notes": [shared]}}
    markdown = render_report(records, {})
    assert markdown.count(shared) == markdown.count(own) == 1
    end = markdown[markdown.index("## Notes on several evaluations") :]
    assert end == (
        f"## Notes on several evaluations\n\n- {shared}\n\n"
        "## Data (SHA-256)\n\n- `f` sha (table1, table2)\n- `g` sha2 (table1)\n"
    )
    page = Page(render_html(records, {}, tmp_path))
    texts = [text for _, text in page.texts]
    assert texts.count(shared) == texts.count(own) == texts.count("sha (table1, table2)") == 1
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert {"#notes", "#data"} <= set(links)
    assert "#no-result" not in links
