"""Build the sdist and the wheel, install the wheel in a new environment, and try it.

Run as: python scripts/test_wheel.py, or `make test-wheel`. The files stay in dist/.

The new environment contains what elmore's metadata declares, and nothing else: a dependency that is
not declared is noticed. Its packages are links to those of the environment that runs this script,
because installing PyTorch would take minutes.
"""

import email
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
MAX_BYTES = 100_000_000  # of a file on PyPI
REQUIRED = (
    "elmore/py.typed",
    "elmore/models/en/README.md",
    "elmore/models/en/config.json",
    "elmore/models/en/vocab.txt",
)
FROM_SITE = """
import sys, elmore
assert elmore.__file__.startswith(sys.prefix), elmore.__file__
"""
SMOKE_TEST = """
import elmore
[vectors] = elmore.load(device="cpu").embed(["He sat by the bank."])
print(elmore.__version__, vectors.shape, f"{float(abs(vectors).sum()):.1f}")
"""
TEXT = "They saw a play.\nThe children play chess.\nThe play was long.\n"


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist from the repository, and the wheel from the sdist."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder],
        cwd=ROOT,
        check=True,
    )
    [sdist] = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        [source] = Path(unpacked).iterdir()
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
            cwd=source,
            check=True,
        )
    [wheel] = folder.glob("*.whl")
    return sdist, wheel


def check_files(sdist: Path, wheel: Path) -> None:
    """Check the sizes and the contents."""
    for file in (sdist, wheel):
        size = file.stat().st_size
        assert size < MAX_BYTES, f"{file.name} has {size:,} bytes; PyPI accepts {MAX_BYTES:,}"
        print(f"{file.name}: {size / 1e6:.1f} MB")
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = {name for name in REQUIRED if name not in names}
    assert not missing, f"{wheel.name} lacks {missing}"
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith(".safetensors") for name in names)
    assert all(name.startswith("elmore") for name in names), names
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert sources <= names, f"{wheel.name} lacks {sources - names}"


def try_wheel(wheel: Path) -> None:
    """Install the wheel in a new environment, and use it from an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        link_dependencies(environment, wheel)
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
        subprocess.run([*pip, "check"], check=True)
        empty = Path(folder) / "empty"
        empty.mkdir()
        (empty / "text.txt").write_text(TEXT)
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        source = {**clean, "PYTHONPATH": str(ROOT / "src")}

        def run(*command: str | Path, env: dict[str, str] = clean) -> str:
            return subprocess.run(
                command, cwd=empty, env=env, check=True, stdout=subprocess.PIPE, text=True
            ).stdout

        installed = run(python, "-c", f"{FROM_SITE}\n{SMOKE_TEST}")
        from_source = run(sys.executable, "-c", SMOKE_TEST, env=source)
        assert installed == from_source, f"installed: {installed}, repository: {from_source}"
        assert f"elmore-{installed.split()[0]}-" in wheel.name
        command = environment / "bin" / "elmore"
        assert "en" in run(command, "info")
        run(command, "embed", "text.txt", "-o", "vectors.parquet")
        run(command, "neighbors", "She wrote a [play].", "--corpus", "text.txt")
        assert (empty / "vectors.parquet").stat().st_size > 0
        print("installed and tried:", installed.strip())


def link_dependencies(environment: Path, wheel: Path) -> None:
    """Link the packages that a wheel requires, and those that they require, into an environment."""
    [site] = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    todo = requirements(metadata.get_all("Requires-Dist"))
    done: set[str] = set()
    while todo - done:
        name = (todo - done).pop()
        done.add(name)
        package = distribution(name)
        todo |= requirements(package.requires)
        for top in {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(package.locate_file(top))


def requirements(lines: list[str] | None) -> set[str]:
    """Return the names of required packages, without those of extras."""
    found = map(Requirement, lines or [])
    return {r.name for r in found if r.marker is None or r.marker.evaluate({"extra": ""})}


def main() -> None:
    """Build, check and try."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    sdist, wheel = build(DIST)
    check_files(sdist, wheel)
    try_wheel(wheel)


if __name__ == "__main__":
    main()
