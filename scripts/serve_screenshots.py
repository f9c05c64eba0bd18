"""Take the screenshots of docs/howto/serve.md and docs/ko/README.md, in headless Chromium.

Run as: python scripts/serve_screenshots.py

Needs the extras `browser` and `plots`, and Chromium (apt-get install chromium fonts-noto-cjk).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from elmore.server.client import Client

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
KOREAN = ROOT / "models" / "ko"
TASKS = ROOT / "models" / "en-tasks"
WIDTH = 1000
PANELS = {  # URL fragment and color scheme; each panel shows its first example
    "context": "light",
    "neighbors": "light",
    "mix": "dark",
    "tasks?task=srl": "light",
    "inside": "light",
}


def main() -> None:
    """Start a server, and write one file per panel."""
    tasks = [TASKS / name for name in ("srl", "srl-baseline")]
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    options = ["--model", "en", *(word for task in tasks for word in ("--task", str(task)))]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with serve(*options) as address:
            for panel, scheme in PANELS.items():
                take(browser, address, panel, scheme)
        with serve("--model", f"ko={KOREAN}") as address:
            take(browser, address, "neighbors", "light", language="ko")
        browser.close()


@contextmanager
def serve(*options: str) -> Iterator[str]:
    """Run a server on the loopback interface; yield its address once its corpus is embedded."""
    command = [sys.executable, "-m", "elmore", "serve", "--port", "0", "--device", "cpu", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[0]
            Client(address, retries=100).neighbors("a [play]")
            yield address
        finally:
            process.terminate()


def take(browser: Browser, address: str, panel: str, scheme: str, *, language: str = "en") -> None:
    """Write a picture of a panel with its results; time out if there is an error instead."""
    page = browser.new_page(
        viewport={"width": WIDTH, "height": 700},
        color_scheme=scheme,  # type: ignore[arg-type]
        locale=language,
        reduced_motion="reduce",
    )
    page.goto(f"{address}/#{panel}")
    page.wait_for_function(
        "() => document.querySelectorAll('.result').length && !document.querySelector('.stale')"
        " && [...document.querySelectorAll('.result')].every(area => area.children.length)"
    )
    picture = Image.open(BytesIO(page.screenshot(full_page=True)))
    name = panel.partition("?")[0]
    suffix = "" if language == "en" else f"-{language}"
    # A palette of 256 colors takes a third of the space.
    picture.quantize(256).save(FIGURES / f"serve-{name}{suffix}.png", optimize=True)
    page.close()


if __name__ == "__main__":
    main()
