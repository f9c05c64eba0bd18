"""The documentation site. Oracles: the pages in the repository; the public names of the package."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import elmore
from elmore import tasks
from scripts.site import broken_links, index_folder, mathml, notebook_to_markdown
from tests.test_docs import CARDS, ROOT

API = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
DIRECTIVES = re.findall(r"^::: ([\w.]+)$", API, re.MULTILINE)
# Used by the modules beside them, not by programs
INTERNAL = {
    "allennlp_command.py", "allennlp_embedder.py", "allennlp_weights.py", "command.py",
    "input_files.py", "ray_cluster.py", "stateful.py",
}  # fmt: skip
OPTIONAL = sorted(
    path.relative_to(ROOT / "src").with_suffix("").as_posix().replace("/", ".")
    for folder in ("compat", "integrations")
    for path in (ROOT / "src" / "elmore" / folder).iterdir()
    if not path.name.startswith("_") and path.name not in INTERNAL
)


def leaves(tree: object) -> Iterator[str]:
    match tree:
        case str():
            yield tree
        case dict():
            yield from (leaf for value in tree.values() for leaf in leaves(value))
        case list():
            yield from (leaf for value in tree for leaf in leaves(value))


def test_every_page_is_in_the_navigation() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/**/*.ipynb"), *CARDS]
    names = {page.relative_to(ROOT).with_suffix(".md").as_posix() for page in pages}
    assert set(leaves(settings["nav"])) - {"experiments/LOG.md"} == names


@pytest.mark.parametrize("name", [n for n in elmore.__all__ if n not in ("__version__", "tasks")])
def test_every_public_name_is_in_the_api_reference(name: str) -> None:
    assert f"elmore.{name}" in DIRECTIVES


def test_every_public_name_of_the_tasks_is_in_the_api_reference() -> None:
    for name in ("get_task", *tasks._MODULES):
        assert f"elmore.tasks.{name}" in DIRECTIVES


@pytest.mark.parametrize("module", OPTIONAL)
def test_every_optional_module_is_in_the_api_reference(module: str) -> None:
    assert any(name == module or name.startswith(f"{module}.") for name in DIRECTIVES)


def test_formulas_become_mathml() -> None:
    [inline] = re.finditer(r"\$\$(.+?)\$\$|\$([^$]+?)\$", "the vector $x_k$ of")
    assert re.search(r"<msub><mi>x</mi><mi>k</mi></msub>", mathml(inline))


def test_notebook_becomes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.site.PAGES", tmp_path)
    (tmp_path / "docs" / "tutorials").mkdir(parents=True)
    page = notebook_to_markdown(ROOT / "docs" / "tutorials" / "word-senses.ipynb")
    assert page.startswith("# Explore word senses\n")
    assert "```python\nfrom pathlib import Path\n" in page
    [image] = re.findall(r"!\[.+\]\((.+\.png)\)", page)
    assert (tmp_path / "docs" / "tutorials" / image).read_bytes().startswith(b"\x89PNG")


def test_page_of_a_korean_notebook_is_in_korean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.site.PAGES", tmp_path)
    (tmp_path / "docs" / "ko" / "tutorials").mkdir(parents=True)
    page = notebook_to_markdown(ROOT / "docs" / "ko" / "tutorials" / "paper-to-code.ipynb")
    title, _, note, *_ = page.splitlines()
    assert title == "# 논문에서 코드로"
    assert "노트북으로 내려받기" in note


def test_linked_folder_gets_a_page_with_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Static sites do not list folders."""
    monkeypatch.setattr("scripts.site.PAGES", tmp_path)
    runs = ROOT / "docs" / "results" / "runs"
    assert index_folder(runs) == set(runs.glob("*.json")) != set()
    page = (tmp_path / "docs" / "results" / "runs" / "index.md").read_text()
    assert page.startswith("# docs/results/runs\n")
    assert set(re.findall(r"\]\((.+)\)", page)) == {file.name for file in runs.iterdir()}


def test_broken_links_of_a_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#no">b</a><img src="c.png">'
    )
    (tmp_path / "b.html").write_text('<a href="a.html#top">a</a><a href="https://x.org/no">x</a>')
    assert sorted(broken_links(tmp_path)) == [
        "a.html links to b.html#no, which has no such heading",
        "a.html links to c.png, which does not exist",
    ]
