"""Small samples of data, for quick runs."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from elmore.analysis.data_files import find_file
from elmore.analysis.training.samples import Format, write_sample
from elmore.text.lines import read_lines

Sampler = Callable[[Path, Path], None]
"""Writes a sample of the first file to the second."""

_SEMCOR_STEP = 40  # every 40th sentence is kept


def sample_of(form: Format, count: int) -> Sampler:
    """Return a function that writes a random sample of `count` lines or sentences."""

    def write(source: Path, target: Path) -> None:
        write_sample(source, target, form, count)

    return write


def sample_semcor(source: Path, target: Path) -> None:
    """Write every 40th sentence of SemCor, and all that contain "play" (Table 4)."""
    kept: list[str] = []
    sentence: list[str] = []
    number = 0
    for line in read_lines(source):
        if line.lstrip().startswith("<sentence"):
            sentence = [line]
        elif sentence:
            sentence.append(line)
        else:
            kept.append(line)
        if line.rstrip().endswith("</sentence>"):
            if number % _SEMCOR_STEP == 0 or any(">play<" in word for word in sentence):
                kept += sentence
            sentence, number = [], number + 1
    target.write_text("\n".join(kept) + "\n", encoding="utf-8")


@contextmanager
def sampled_folder(
    folder: Path, patterns: Sequence[str], samplers: Mapping[str, Sampler]
) -> Iterator[Path]:
    """Yield a temporary folder with samples of the files of an evaluation.

    Args:
        folder: The folder of the files.
        patterns: Patterns of the files.
        samplers: Functions by pattern; files without one are copied.
    """
    with tempfile.TemporaryDirectory(prefix="elmore-") as temporary:
        for pattern in patterns:
            source = find_file(folder, pattern)
            target = Path(temporary) / source.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if pattern in samplers:
                plain = target.with_suffix("") if target.suffix in (".xz", ".gz") else target
                samplers[pattern](source, plain)
            elif source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copy(source, target)
        yield Path(temporary)
