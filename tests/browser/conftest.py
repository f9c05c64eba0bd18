"""A server with the English and the Korean model and toy tasks, and headless Chromium."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from elmore.server.client import Client
from tests.browser.toy_tasks import train_all

ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("needs Chromium, for example apt-get install chromium, or CHROMIUM=PATH")
    return path


@pytest.fixture(scope="session")
def address(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server, or $ELMORE_URL."""
    if url := os.environ.get("ELMORE_URL"):
        yield url
        return
    from elmore.bilm.config import BiLMConfig
    from elmore.bilm.model import BiLM
    from elmore.embedder import Embedder

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("tasks")
    Embedder(BiLM(BiLMConfig.tiny()), device="cpu").save(folder / "tiny")
    tasks = train_all(folder, folder / "tiny")
    command = [sys.executable, "-m", "elmore", "serve", "--port", "0", "--device", "cpu"]
    command += ["--model", "en", "--model", f"ko={ROOT / 'models' / 'ko'}"]
    command += [word for path in tasks for word in ("--task", str(path))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[0]
            Client(url, retries=100).neighbors("a [play]")  # the corpus takes seconds to embed
            yield url
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra browser")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """A page that records console messages, failures and requests to other hosts."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("console", lambda m: m.type in ("error", "warning") and self._add(m.text))
        page.on("pageerror", lambda error: self._add(str(error)))
        page.on("requestfailed", lambda request: self._add(f"failed: {request.url}"))
        page.on("request", lambda r: r.url.startswith((address, "data:")) or self._add(r.url))

    def _add(self, problem: str) -> None:
        self.problems.append(problem)


@pytest.fixture
def expected() -> list[str]:
    """Problems that a test causes."""
    return []


@pytest.fixture
def new_page(browser: Any, address: str, expected: list[str]) -> Iterator[Any]:
    """A function that opens the page: panel, width, color scheme, language."""
    contexts, pages = [], []

    def new(
        panel: str = "", *, width: int = 1280, scheme: str = "light", locale: str = "en-US"
    ) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, locale=locale
        )
        context.set_default_timeout(60_000)
        page = context.new_page()
        contexts.append(context)
        pages.append(Watched(page, address))
        page.goto(f"{address}/{panel}")
        page.wait_for_selector("html[data-ready=true]")
        return page

    yield new
    for context in contexts:
        context.close()
    problems = [problem for page in pages for problem in page.problems]
    assert [p for p in problems if not any(part in p for part in expected)] == []
