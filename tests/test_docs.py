"""Documentation. Oracles: the output of its code; the files, headings and names it refers to."""

import ast
import doctest
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pytest

from elmore.cli import app
from elmore.pretrain.config import read_config
from elmore.pretrain.finetune import read_finetune_config
from elmore.tasks import TASKS, read_task_config
from tests.packages import install
from tests.processes import SERVER

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "elmore"
CARDS = [*ROOT.glob("src/elmore/models/*/README.md"), *ROOT.glob("models/*/README.md")]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("experiments/*.md"), *CARDS]
)

_BLOCK = re.compile(r"^```(\w*) ?(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SYMBOL = re.compile(r"`([\w/]+\.py):([\w.]+)`")
_DECIMAL = re.compile(r"-?\d+\.\d+")
_SPEED = re.compile(r"in [\d.]+ s, [\d,]+ words/s")
_HANGUL = re.compile("[\uac00-\ud7a3]")


class Block(NamedTuple):
    """A fenced code block: its language, the extra that it needs, and its lines."""

    kind: str
    extra: str
    body: str


def blocks_of(page: Path) -> list[Block]:
    return [Block(*groups) for groups in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def prose_of(page: Path) -> str:
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
PAGES_WITH_RAY = [page for page in PAGES if any(block.extra == "ray" for block in blocks_of(page))]


@pytest.mark.parametrize(
    ("page", "extra"),
    [
        *(pytest.param(page, "", id=name_of(page), marks=pytest.mark.docs) for page in PAGES),
        *(
            pytest.param(page, "ray", id=f"{name_of(page)} ray", marks=pytest.mark.ray)
            for page in PAGES_WITH_RAY
        ),
    ],
)
def test_code_runs_in_an_empty_folder_and_prints_the_output_on_the_page(
    page: Path,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("elmore.text.corpus.get_context", lambda _: SERVER)  # starts workers faster
    monkeypatch.setattr("elmore.pretrain.run.CACHE", tmp_path / "cache")
    monkeypatch.setattr("elmore.pretrain.finetune.CACHE", tmp_path / "cache")
    monkeypatch.syspath_prepend(tmp_path / "site")
    names: dict[str, object] = {"__name__": page.stem}
    printed = None
    for kind, needed, body in blocks_of(page):
        if needed not in ("", extra):
            continue
        if kind == "text":
            assert printed is not None, f"output block without a preceding code block:\n{body}"
            assert same_output(body, printed), f"expected\n{body}\ngot\n{printed}"
        elif kind in ("python", "sh"):
            capsys.readouterr()
            run = run_python if kind == "python" else run_commands
            run(body, page, names)
            printed = capsys.readouterr().out
        elif kind == "toml":
            write_file(body)


def test_code_blocks_need_no_other_extras() -> None:
    assert {block.extra for page in PAGES for block in blocks_of(page)} == {"", "ray"}


def run_python(code: str, page: Path, names: dict[str, object]) -> None:
    exec(compile(code, name_of(page), "exec"), names)  # blocks of a page share variables


def run_commands(lines: str, page: Path, names: dict[str, object]) -> None:
    """Run the commands of a shell block; check those that install elmore or start `make`."""
    for line in lines.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        match words:
            case []:
                pass
            case ["elmore", *arguments]:
                app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
            case ["python", "-m", module, *arguments] if module.startswith("elmore."):
                import_module(module).main(arguments)
            case ["printf", *_]:
                subprocess.run(line, shell=True, check=True)
            case ["pip", "install", path] if path.startswith("./models/"):
                install(ROOT / path, Path("../site"))
            case ["pip", "install", path] if path.startswith("./"):
                install(Path(path), Path("../site"))
            case ["pip", "install", package] | ["make", package]:
                assert is_declared(package), f"{name_of(page)}: {line}"
            case _:
                pytest.fail(f"{name_of(page)}: not run: {line}; use a console block")


def is_declared(name: str) -> bool:
    """Return whether a name is elmore, with extras or without, or a target of the Makefile."""
    if name == ".":  # a checkout of this repository
        return True
    if re.search(rf"^{re.escape(name)}:", (ROOT / "Makefile").read_text(), re.MULTILINE):
        return True
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package, _, extras = name.removesuffix("]").partition("[")
    declared = {"", *project["optional-dependencies"]}
    return package == "elmore" and declared.issuperset(extras.split(","))


@every_page
def test_illustrative_commands_are_valid(page: Path) -> None:
    """`console` blocks are not run; the arguments of their `elmore` commands must parse."""
    bodies = [block.body for block in blocks_of(page) if block.kind == "console"]
    for line in "".join(bodies).replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            for command in commands_of(shlex.split(line[2:], comments=True)):
                app.parse_args(command, exit_on_error=False, print_error=False)


def commands_of(words: list[str]) -> Iterator[list[str]]:
    """Yield the arguments of each `elmore`, or `-m elmore`, in a pipeline."""
    while "elmore" in words:
        words = words[words.index("elmore") + 1 :]
        end = min((words.index(sign) for sign in "|<>&" if sign in words), default=len(words))
        yield words[:end]


@every_page
def test_options_in_the_text_exist(page: Path) -> None:
    for code in re.findall(r"`elmore ([a-z][^`\n]*--[^`\n]*)`", prose_of(page)):
        words = code.split()
        [*_, command] = app.parse_commands(words)[1]
        known = {name for a in command.assemble_argument_collection() for name in a.names}
        options = {word.strip("[]") for word in words if word.startswith(("--", "[--"))}
        assert options <= {"--help", *known}, f"{name_of(page)}: elmore {code}"


@every_page
def test_illustrative_python_is_valid(page: Path) -> None:
    for block in blocks_of(page):
        if block.kind == "py":
            ast.parse(block.body)


def write_file(body: str) -> None:
    """Write a block to the file that its first line names in a comment."""
    Path(body.partition("\n")[0].removeprefix("# ")).write_text(body, encoding="utf-8")


def same_output(expected: str, printed: str) -> bool:
    """Compare outputs, except for durations; decimals may differ by one in the last digit."""
    expected, printed = (_SPEED.sub("in 0 s", text) for text in (expected, printed))
    pairs = zip(_DECIMAL.findall(expected), _DECIMAL.findall(printed), strict=False)
    close = all(abs(float(a) - float(b)) < 1.5 * 10.0 ** -len(a.split(".")[1]) for a, b in pairs)
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    expected, printed = (_DECIMAL.sub("0.0", text) for text in (expected, printed))
    return close and checker.check_output(expected, printed, flags)


SETTINGS = {
    "docs/howto/pretrain.md": read_config(),
    "docs/howto/finetune.md": read_finetune_config([]),
    **{f"docs/tasks/{name}.md": read_task_config(name) for name in TASKS},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_default_settings_on_the_page_are_those_of_the_code(name: str) -> None:
    """Rows are `| `section.name`, `.other` | default, other default | meaning |`."""
    checked = 0
    for cells in re.findall(
        r"^\| (`\w+\.\w+`[^|]*) \| ([^|]+) \|", (ROOT / name).read_text(), re.M
    ):
        names = re.findall(r"`([\w.]+)`", cells[0])
        section = names[0].partition(".")[0]
        paths = [f"{section}{n}" if n.startswith(".") else n for n in names]
        actual = [attrgetter(path)(SETTINGS[name]) for path in paths]
        if None not in actual:  # described in words, such as: that of the biLM
            shown = (
                re.split(r", (?! )", cells[1].replace("`", "")) if len(paths) > 1 else [cells[1]]
            )
            assert [as_text(v) for v in actual] == [as_text(v) for v in shown], cells
            checked += 1
    assert checked


def as_text(value: object) -> str:
    """Return a setting in one spelling: 200,000 is 200000, and 1e-3 is 0.001."""
    text = str(value).lower().replace(",", "") if str(value) != "," else ","
    return text if text in ("true", "false", ",") or not text[0].isdigit() else str(float(text))


@every_page
def test_link_targets_exist(page: Path) -> None:
    for target in _LINK.findall(prose_of(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name_of(page)} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors_of(file), f"{name_of(page)}: no heading for {target}"


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub generates for the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_code_blocks_are_ascii_or_hangul(page: Path) -> None:
    for kind, _, body in blocks_of(page):
        assert _HANGUL.sub("", body).isascii() or kind == "text", f"{name_of(page)}: {body}"


def test_korean_readme_states_the_numbers_of_the_readme_and_of_the_korean_card() -> None:
    korean, english, card = (
        set(_DECIMAL.findall(prose_of(ROOT / name)))
        for name in ("docs/ko/README.md", "README.md", "models/ko/README.md")
    )
    assert korean
    assert korean <= english | card


def test_code_layout_is_complete() -> None:
    blocks = blocks_of(ROOT / "docs" / "code-layout.md")
    [tree] = [block.body for block in blocks if block.body.startswith("src/elmore/")]
    files = [file.relative_to(SOURCE).as_posix() for file in SOURCE.rglob("*.py") if has_code(file)]
    assert sorted(paths_in(tree)) == sorted(files)


def has_code(file: Path) -> bool:
    """Return whether a file has more than a docstring."""
    return len(ast.parse(file.read_text(encoding="utf-8")).body) > 1


def paths_in(tree: str) -> Iterator[str]:
    """Yield the files of a listing with two spaces of indentation per level."""
    folders: list[str] = []
    for line in tree.splitlines()[1:]:
        name, _, description = line.strip().partition(" ")
        assert description.strip(), f"the code layout does not describe {name}"
        depth = (len(line) - len(line.lstrip())) // 2 - 1
        del folders[depth:]
        if name.endswith("/"):
            folders.append(name)
        else:
            yield "".join(folders) + name


def test_code_layout_in_the_readme_has_parts_that_exist() -> None:
    blocks = blocks_of(ROOT / "README.md")
    [tree] = [block.body for block in blocks if block.body.startswith("src/elmore/")]
    parts = [line.split()[0] for line in tree.splitlines()[1:]]
    assert all((SOURCE / part).exists() for part in parts)
    folders = {f"{folder.parent.name}/" for folder in SOURCE.glob("*/__init__.py")}
    assert folders <= set(parts)


def test_every_symbol_in_the_paper_map_exists() -> None:
    symbols = _SYMBOL.findall((ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8"))
    assert symbols
    for file, symbol in symbols:
        assert defines(SOURCE / file, symbol.split(".")), f"{file} does not define {symbol}"


def defines(file: Path, symbol: list[str]) -> bool:
    """Return whether a file defines `name` or `Class.name`."""
    scope: ast.AST = ast.parse(file.read_text(encoding="utf-8"))
    for name in symbol:
        nodes = [node for node in ast.iter_child_nodes(scope) if name in names_of(node)]
        if not nodes:
            return False
        [scope] = nodes
    return True


def names_of(node: ast.AST) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


@every_page
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for file in re.findall(r"`(tests/[\w/]+\.py)`", page.read_text(encoding="utf-8")):
        assert (ROOT / file).is_file(), f"{name_of(page)} names {file}"


def test_every_deviation_in_the_code_is_documented() -> None:
    page = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
    for file in SOURCE.rglob("*.py"):
        if "# Deviation:" in file.read_text(encoding="utf-8"):
            assert f"`{file.relative_to(SOURCE).as_posix()}`" in page
