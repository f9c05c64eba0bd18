"""Small samples of data, for quick runs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from elmore.analysis.training.samples import Format, write_sample
from elmore.atomic import temporary_folder
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
def sampled_files(
    paths: Sequence[Path], samplers: Sequence[Sampler | None]
) -> Iterator[list[Path]]:
    """Yield the paths of samples of files, which are deleted at the end.

    Args:
        paths: Files of an evaluation, optionally compressed.
        samplers: The function that writes the sample of each file; a file without one is not
            sampled.
    """
    with temporary_folder() as folder:
        samples = list(paths)
        for number, (path, write) in enumerate(zip(paths, samplers, strict=True)):
            if write:
                name = path.stem if path.suffix in (".xz", ".gz") else path.name
                samples[number] = folder / str(number) / name
                samples[number].parent.mkdir()
                write(path, samples[number])
        yield samples
