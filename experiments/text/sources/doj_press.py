"""Press releases of the US Department of Justice, 2009 to 2018: lennymd/news21-pressReleasesDOJ.

Characters outside ASCII, such as quotation marks and apostrophes, were lost upstream. Frequent
apostrophes are restored, and paragraphs that quote someone are left out.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sources.paragraphs import normalize, strip_tags
from sources.repository import list_files, read_texts

_TITLE = re.compile(
    r'<h1[^>]*id="node-title"[^>]*>(.*?)</h1>|<meta property="og:title" content="([^"]*)"', re.S
)
_BODY = re.compile(
    r'field--name-field-pr-body.*?<div class="field__item[^>]*>(.*?)'
    r'(?:<div class="field field--name-|</article>|<div id="content-bottom|$)',
    re.S,
)
_PARAGRAPH = re.compile(r"<p\b[^>]*>(.*?)</p>", re.S)
_QUOTATION = re.compile(r"\bsaid (?:[A-Z]|the\b)|\b(?:stated|added) [A-Z]")
_NOTICE = re.compile(
    r"https?://|www\.|^(Related Materials|Attachment|Download|###|To report|Anyone|"
    r"For more information)"
)
_APOSTROPHES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\bU\.S\. Attorneys Office\b", "U.S. Attorney's Office"),
        (r"\bUnited States Attorneys Office\b", "United States Attorney's Office"),
        (
            r"\b(Sheriff|Attorney General|State|District Attorney|Prosecutor|Coroner|Auditor"
            r"|Inspector General|Commonwealth|Medical Examiner)s Office\b",
            r"\1's Office",
        ),
        (
            r"\b(Division|Department|Section|Office|FBI|DEA|ATF|IRS|HHS|EPA|ICE|SEC|HUD|USDA|Bureau"
            r"|Agency|Administration|Unit|Service|Force|Team|Center|Commission|Corporation|Company"
            r"|City|County|State|America|Bank)s (?=[A-Z])",
            r"\1's ",
        ),
        (r"\b([Ww]e|[Tt]hey|[Yy]ou|I)ve\b", r"\1've"),
        (r"\b([Tt]hey|[Yy]ou)(re|ll)\b", r"\1'\2"),
        (
            r"\b(don|doesn|didn|isn|wasn|weren|aren|won|wouldn|couldn|shouldn|haven|hasn|hadn|can)"
            r"t\b",
            r"\1't",
        ),
        (
            r"\b([Tt]oday|[Yy]esterday|[Nn]ation|[Dd]epartment|[Cc]ompany|[Cc]orporation|[Ff]irm)s "
            r"(?=[a-z])",
            r"\1's ",
        ),
        (r"\b(women|men|children|people)s (?=[a-z])", r"\1's "),
    ]
]
_PLURALS = re.compile(
    "Attorneys|Agents|Courts|States|Defendants|Inspectors|Services|Officers|Members|Laws|Acts"
    "|Offices|Divisions|Sections|Departments|Counties|Districts|Judges|Investigators|Lords|Kings"
    "|Officials|Operations|Systems|Programs|Companies|Banks|Funds|Contracts|Texas|Kansas|Arkansas"
    "|Illinois"
)


def extract(git: Path) -> Iterator[str]:
    """Yield the titles and paragraphs of all press releases."""
    files = list_files(git, "scrape_pressRelease/pressReleases", suffix=".html")
    for page in read_texts(git, files):
        if not (body := _BODY.search(page)):
            continue
        if title := _TITLE.search(page):
            yield strip_tags(title[1] or title[2] or "")
        names = set(re.findall(r"\b[A-Z][a-z]{2,}\b", normalize(strip_tags(body[1]))))
        for paragraph in _PARAGRAPH.findall(body[1]):
            text = normalize(strip_tags(re.sub(r"<br\s*/?>", " ", paragraph)))
            if not _QUOTATION.search(text) and not _NOTICE.search(text):
                yield _restore_apostrophes(text, names)


def _restore_apostrophes(text: str, names: set[str]) -> str:
    """Restore contractions and possessives, those of a name if it also occurs without an s."""
    for pattern, replacement in _APOSTROPHES:
        text = pattern.sub(replacement, text)

    def restore(match: re.Match[str]) -> str:
        name = match[1]
        is_possessive = name in names and not _PLURALS.fullmatch(f"{name}s")
        return f"{name}'s " if is_possessive else match[0]

    return re.sub(r"\b([A-Z][a-z]{2,})s (?=[a-z]{3,})", restore, text)
