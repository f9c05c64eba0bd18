"""Trained tasks as a Python package: small enough to publish, and pinned to their biLM.

DIR/pyproject.toml                   the distribution, with an entry point in `elmore.tasks`
DIR/README.md                        the model card, to be completed by hand
DIR/LICENSE                          licenses of data and weights
DIR/words.json vectors.safetensors   pretrained word vectors, which the tasks share
DIR/NAME/                            a trained task with compressed weights
"""

import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePath
from typing import NamedTuple

import elmore
from elmore.atomic import atomic_folder, lock, refuse_existing
from elmore.checkpoint.directory import Dtype, read_config
from elmore.checkpoint.locate import TASK, TASKS
from elmore.checkpoint.packages import model_packages
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.schema import read_json, write_json
from elmore.tasks.installed import find_task
from elmore.tasks.saved import load, read_bilm_hash, save_model
from elmore.tasks.shared_vectors import SharedVectors
from elmore.tasks.trained import TrainedTask, assemble
from elmore.tasks.vectors import WordVectors
from elmore.tasks.words import WordIndex
from elmore.training.settings import write_settings

MAX_FILE, MAX_PACKAGE = 50_000_000, 100_000_000
"""Limits of GitHub for a file without a warning, and of PyPI for a wheel, in bytes."""

_FACTS = ("task", "scores", "bilm", "labels", "epochs", "train_examples", "parameters", "elmo")
"""What is published of task.json; the rest describes the machine and the files of the training."""

_PROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "elmore-{bilm}-tasks"
version = "1"
description = "Trained tasks for the ELMo model {bilm} of elmore"
readme = "README.md"
license-files = ["LICENSE"]
requires-python = ">=3.11"
dependencies = ["elmore>={version}"]

[project.entry-points."{group}"]
{bilm} = "elmore_{module}_tasks"

[tool.hatch.build.targets.wheel]
include = [
    "/README.md",
    "/words.json",
    "/vectors.safetensors",
    "/*/*.json",
    "/*/config.toml",
    "/*/model.safetensors",
]

[tool.hatch.build.targets.wheel.sources]
"" = "elmore_{module}_tasks"
"""


class PackagedTask(NamedTuple):
    """What packaging did to a task."""

    name: str
    task: str
    words: int
    """Words with a vector."""

    words_before: int
    bytes: int
    score_name: str
    score: float | None
    """Score of the packaged task on the file for this task; None without a file."""

    score_before: float | None


def package_tasks(
    runs: Mapping[str, Path | str],
    output: Path | str,
    *,
    license_file: Path | str,
    data: Mapping[str, Sequence[Path | str]] | None = None,
    evaluate: Mapping[str, Path | str] | None = None,
    max_words: int = 50_000,
    dtype: Dtype = "int8",
    device: str = "auto",
) -> list[PackagedTask]:
    """Write a Python package of trained tasks, and measure what compressing them changed.

    A task keeps the vectors that were trained with it. Of the frozen ones, the package keeps those
    of the words in `data`, and the first ones up to `max_words`: files of word vectors list
    frequent words first. Tasks that were trained with the same file as the first one share them.

    Args:
        runs: Names of the tasks in the package, and folders of trained tasks, all with the same
            biLM or without one. The biLM must be an installed model; tasks are pinned to its hash.
        output: Folder to write.
        license_file: Licenses of the training data and of the weights, copied to LICENSE.
        data: Labeled files by the kind of task, such as `{"ner": ["train.conll"]}`, whose words
            keep their vectors.
        evaluate: A labeled file by the kind of task, scored before and after.
        max_words: Number of frozen word vectors, unless `data` has more words: of those that tasks
            share, and of each task that does not share.
        dtype: Type of the weights and word vectors in the files; see `elmore convert`.
        device: Where to compute the scores.

    Raises:
        InputError: If a run cannot be published, or the package is too large.
    """
    output, data, evaluate = Path(output), data or {}, evaluate or {}
    if max_words < 0:
        raise InputError(f"max_words must be at least 0, got {max_words}")
    refuse_existing(output, overwrite=False, contents=("pyproject.toml",), inputs=runs.values())
    bilm = _common_bilm(runs)
    with lock(output), atomic_folder(output) as folder:
        shutil.copyfile(license_file, folder / "LICENSE")
        shared = SharedVectors()
        needed: dict[str, set[str]] = {}
        embedder: Embedder | None = None
        for name, run in runs.items():
            before = load(run, device=device, bilm=embedder)
            embedder = embedder or _embedder(before)  # all tasks share it
            shared.add(name, before.encode.index, _frozen_vectors(before).vectors)
            needed[name] = _words_of(before, data.get(before.task.name, ()))
        needed_of_shared = {word for name in runs if name in shared for word in needed[name]}
        shared_words = _words_to_keep(shared.words, needed_of_shared, max_words)
        if shared_words:
            shared.save(shared_words, folder, dtype=dtype)
        packaged: list[PackagedTask] = []
        for name, run in runs.items():
            before = load(run, device=device, bilm=embedder)
            kind, known = before.task.name, before.encode.index.known
            shares = bool(shared_words) and name in shared
            words = shared_words if shares else _words_to_keep(known, needed[name], max_words)
            small = _with_words(before, words, bilm)
            _write(small, find_task(run), folder / name, dtype, shares_vectors=shares)
            after = load(folder / name, device=device, bilm=embedder)
            packaged.append(
                PackagedTask(
                    name,
                    kind,
                    words=len(after.encode.index),
                    words_before=len(before.encode.index),
                    bytes=_size(folder / name),
                    score_name=after.task.score_name,
                    score=_score(after, evaluate.get(kind)),
                    score_before=_score(before, evaluate.get(kind)),
                )
            )
        kinds = {task.task for task in packaged}
        if unknown := {*data, *evaluate} - kinds:
            raise InputError(f"there is no task {unknown.pop()}; expected {', '.join(kinds)}")
        module = bilm.replace("-", "_")
        project = _PROJECT.format(bilm=bilm, module=module, group=TASKS, version=elmore.__version__)
        (folder / "pyproject.toml").write_text(project, encoding="utf-8")
        (folder / "README.md").write_text(_card(bilm, packaged), encoding="utf-8")
        _check_sizes(folder)
    return packaged


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _score(trained: TrainedTask, file: Path | str | None) -> float | None:
    return None if file is None else trained.evaluate(file)[trained.task.score_name]


def parse_files(values: Iterable[str]) -> dict[str, list[Path]]:
    """Group files by the kind of task, given as KIND=FILE."""
    files: dict[str, list[Path]] = {}
    for value in values:
        kind, _, file = value.partition("=")
        if not kind or not file:
            raise InputError(f"expected TASK=FILE, as in ner=train.conll, got {value!r}")
        files.setdefault(kind, []).append(Path(file))
    return files


def _common_bilm(runs: Mapping[str, Path | str]) -> str:
    """Return the name of the installed model that all runs were trained with."""
    hashes = {read_bilm_hash(run): name for name, run in runs.items()}
    hashes.pop(None, None)
    if len(hashes) != 1:
        raise InputError(
            f"expected tasks that were trained with one biLM, got {len(hashes)} biLMs"
            + (f" ({', '.join(hashes.values())})" if hashes else "; baselines alone have none")
        )
    [wanted] = hashes
    for package in model_packages():
        if read_config(package.folder).get("weights_hash") == wanted:
            return package.name
    raise InputError(
        f"{hashes[wanted]} was trained with a biLM that is not an installed model (hash {wanted}); "
        "publish the biLM first, and install it"
    )


def _words_of(trained: TrainedTask, files: Sequence[Path | str]) -> set[str]:
    """Return the words of labeled files, in the forms that have a vector."""
    examples = (example for file in files for example in trained.read(file))
    words = {w for example in examples for text in trained.task.texts(example) for w in text}
    return {form for form in map(trained.encode.index.form, words) if form is not None}


def _embedder(trained: TrainedTask) -> Embedder | None:
    layers = trained.encode.layers
    return layers.embedder if layers and isinstance(layers.embedder, Embedder) else None


def _frozen_vectors(trained: TrainedTask) -> WordVectors:
    table = trained.model.words.table.known
    return WordVectors(trained.encode.index.known, table.cpu().numpy())


def _words_to_keep(words: Sequence[str], needed: Collection[str], max_words: int) -> list[str]:
    """Return the needed words, filled up to `max_words` with the first others, in file order."""
    words = list(dict.fromkeys(words))
    free = max(0, max_words - sum(word in needed for word in words))
    others = set(islice((word for word in words if word not in needed), free))
    return [word for word in words if word in needed or word in others]


def _vectors_of(vectors: WordVectors, words: Sequence[str]) -> WordVectors:
    """Return the vectors of those of the words that have one."""
    row_of = {word: row for row, word in reversed(list(enumerate(vectors.words)))}
    words = [word for word in words if word in row_of]
    return WordVectors(words, vectors.vectors[[row_of[word] for word in words]])


def _with_words(trained: TrainedTask, words: Sequence[str], bilm: str) -> TrainedTask:
    """Return a task with the frozen vectors of these words only, and settings without paths."""
    index = trained.encode.index
    frozen = _vectors_of(_frozen_vectors(trained), words)
    config = trained.config
    vectors = config.words.vectors and PurePath(config.words.vectors).name
    config = replace(
        config,
        words=replace(config.words, vectors=vectors),
        elmo=replace(config.elmo, model=bilm),
    )
    layers = trained.encode.layers
    small = assemble(
        trained.task,
        config,
        WordIndex(index.new, frozen.words),
        frozen,
        trained.labels,
        layers.embedder if layers else None,
        trained.encode.device,
    )
    small.model.load_state_dict(trained.model.state_dict())
    return small


def _write(
    trained: TrainedTask, run: Path, folder: Path, dtype: Dtype, *, shares_vectors: bool
) -> None:
    folder.mkdir()
    write_settings(trained.config, folder / "config.toml")
    content_hash = save_model(trained, folder, dtype=dtype, shares_vectors=shares_vectors)
    facts = read_json(run / TASK, "a trained task")
    published = {name: facts[name] for name in _FACTS if name in facts}
    write_json(folder / TASK, {**published, "hash": content_hash})


def _card(bilm: str, tasks: Sequence[PackagedTask]) -> str:
    """Return a model card with what is known; the author completes it."""

    def percent(score: float | None) -> str:
        return "" if score is None else f"{100 * score:.2f}"

    rows = [
        f"| `{bilm}/{t.name}` | {t.task} | {t.words:,} of {t.words_before:,} | "
        f"{t.bytes / 1e6:.1f} MB | {t.score_name} | {percent(t.score_before)} | "
        f"{percent(t.score)} |"
        for t in tasks
    ]
    return "\n".join(
        [
            f"# Trained tasks for the ELMo model {bilm}",
            "",
            f'`elmore.tasks.load("{bilm}/{tasks[0].name}")`, or `elmore predict '
            f"{bilm}/{tasks[0].name}` on the command line.",
            "",
            "| name | task | words with a vector | size | score | as trained | in this package |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _check_sizes(folder: Path) -> None:
    sizes = {file: file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    largest = max(sizes, key=sizes.__getitem__)
    advice = "use fewer words or a smaller type"
    if sizes[largest] > MAX_FILE:
        raise InputError(
            f"{largest.relative_to(folder)} has {sizes[largest] / 1e6:.1f} MB; expected up to "
            f"{MAX_FILE / 1e6:.0f} MB: {advice}"
        )
    if (total := sum(sizes.values())) > MAX_PACKAGE:
        raise InputError(
            f"the package has {total / 1e6:.1f} MB; expected up to {MAX_PACKAGE / 1e6:.0f} MB: "
            f"{advice}"
        )
