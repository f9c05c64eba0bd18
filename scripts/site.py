"""Build the documentation site: python -m scripts.site, or `make docs`. The result is build/site.

The pages keep the folders of the repository, so that a relative link works on GitHub and on the
site. Notebooks become pages; their formulas become MathML, which browsers show without a script.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from scripts.notebooks import images_of, read_cells, source_of, text_of

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"

_FENCE = re.compile(r"^(```|~~~).*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
_MATH = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", re.DOTALL)
_DOWNLOAD = {"en": "Download this page as a notebook.", "ko": "이 문서를 노트북으로 내려받기"}


def copy_pages() -> None:
    """Copy the pages, and every file or folder of files that a page links to."""
    shutil.rmtree(PAGES, ignore_errors=True)
    todo = {ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/**/*.ipynb")}
    done: set[Path] = set()
    while todo - done:
        file = (todo - done).pop()
        done.add(file)
        target = PAGES / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".ipynb":
            text = notebook_to_markdown(file)
        elif file.suffix == ".md":
            text = file.read_text(encoding="utf-8")
        else:
            shutil.copy(file, target)
            continue
        for linked in linked_files(file, text):
            if linked.is_dir():
                todo |= index_folder(linked)
            elif linked.is_file():
                todo.add(linked)
        text = _LINK.sub(lambda link: link[0].replace(".ipynb", ".md"), text)
        target.with_suffix(".md").write_text(text, encoding="utf-8")


def index_folder(folder: Path) -> set[Path]:
    """Write a page that links to the files of a folder, unless it has one; return the files."""
    files = {file for file in folder.iterdir() if file.is_file() and file.name[0] != "."}
    if folder / "index.md" in files:
        return files
    target = PAGES / folder.relative_to(ROOT) / "index.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    names = "".join(f"- [{file.name}]({file.name})\n" for file in sorted(files))
    target.write_text(f"# {folder.relative_to(ROOT)}\n\n{names}", encoding="utf-8")
    return files


def linked_files(page: Path, text: str) -> Iterator[Path]:
    """Yield the files in the repository that a page links to."""
    for path, _ in _LINK.findall(_FENCE.sub("", text)):
        if "://" not in path and not path.startswith("mailto:"):
            yield (page.parent / path).resolve()


def notebook_to_markdown(path: Path) -> str:
    """Return a notebook as Markdown; its figures are written next to the page."""
    parts = []
    for cell in read_cells(path):
        if cell["cell_type"] == "markdown":
            parts.append(_MATH.sub(mathml, source_of(cell)))
            continue
        parts.append(f"```python\n{source_of(cell)}\n```")
        if text := text_of(cell["outputs"]):
            parts.append(f"```text\n{text.rstrip()}\n```")
        for number, image in enumerate(images_of(cell["outputs"])):
            name = f"{path.stem}-{cell['id']}-{number}.png"
            (PAGES / path.parent.relative_to(ROOT) / name).write_bytes(image)
            parts.append(f"![Output of the cell above]({name})")
    shutil.copy(path, PAGES / path.relative_to(ROOT))
    title, _, rest = "\n\n".join(parts).partition("\n")
    label = _DOWNLOAD["ko" if (ROOT / "docs" / "ko") in path.parents else "en"]
    note = f'<a href="{path.name}" download>{label}</a>'
    return f"{title}\n\n{note}\n{rest}\n"


def mathml(match: re.Match[str]) -> str:
    """Return a formula of LaTeX as MathML."""
    from latex2mathml.converter import convert

    display, inline = match.groups()
    if display:
        return convert(" ".join(display.split()), display="block")
    return f"<span>{convert(inline)}</span>"  # a span stays in its paragraph


class Links(HTMLParser):
    """Collects the links and the ids of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at the attributes of a tag."""
        for name, value in attrs:
            if name in ("href", "src") and value and tag != "link":
                self.targets.append(value)
            elif name in ("id", "name") and value:
                self.ids.add(value)


def broken_links(site: Path) -> Iterator[str]:
    """Yield the links of a site that lead to no file or to no heading."""
    pages = {}
    for page in site.rglob("*.html"):
        pages[page] = Links()
        pages[page].feed(page.read_text(encoding="utf-8"))
    for page, links in pages.items():
        for target in links.targets if page.name != "404.html" else []:
            url = urlsplit(target)
            if url.scheme or url.netloc:
                continue
            file = (page.parent / unquote(url.path)).resolve() if url.path else page
            file = file / "index.html" if file.is_dir() else file
            if not file.exists():
                yield f"{page.relative_to(site)} links to {target}, which does not exist"
            elif file in pages and url.fragment and unquote(url.fragment) not in pages[file].ids:
                yield f"{page.relative_to(site)} links to {target}, which has no such heading"


def main() -> str | None:
    """Build the site; return what is wrong with it."""
    copy_pages()
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=ROOT).returncode:
        return "Zensical reports the problems above"
    return "\n".join(sorted(set(broken_links(SITE)))) or None


if __name__ == "__main__":
    sys.exit(main())
