"""Install a distribution for the duration of a test."""

import subprocess
import sys
import zipfile
from importlib import invalidate_caches
from pathlib import Path


def install(source: Path, site: Path) -> None:
    """Build the wheel of a distribution and unpack it in a folder, like pip without the network.

    The packages are found once the folder is on `sys.path`.
    """
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", site.resolve()]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    for wheel in site.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        wheel.unlink()
    invalidate_caches()
