"""Ray Data: embed a corpus on all machines of a cluster.

    from elmore.integrations.ray import embed_partitions

    embed_partitions("parts/*.parquet", "out/", layers="top", dtype="float16")

`embed_partitions` is for files on storage that all machines share. An actor reads a file, embeds it
and writes its output, so vectors, which are a thousand times as large as text, do not pass through
Ray's object store. `embed_dataset` is a step of your own Ray Data pipeline.
"""

import os
import time
import warnings
from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import pyarrow as pa
import torch

from elmore.atomic import lock, remove_leftovers_in
from elmore.errors import InputError, MissingExtraError, warn_user
from elmore.integrations.arrow import ArrowEmbedder
from elmore.integrations.input_files import open_partition
from elmore.integrations.partitions import (
    OutputFormat,
    PartitionEmbedder,
    find_partitions,
    naming_file,
    open_output,
    run_settings,
)
from elmore.integrations.ray_cluster import (
    check_resources,
    connect,
    count_actors,
    gpus_per_actor,
    require_ray,
)
from elmore.progress import Progress, track
from elmore.schema import check, one_of

if TYPE_CHECKING:
    from ray.data import Dataset

_FAILURES_SHOWN = 3


class EmbeddedPartitions(NamedTuple):
    """The output folder with its partitions and sentences.

    `skipped` counts the partitions that were complete before. Words and seconds are those of this
    run.
    """

    folder: Path
    partitions: int
    skipped: int
    sentences: int
    words: int
    seconds: float


class Report(NamedTuple):
    """What an actor reports about one partition: its result or, if `error` is set, none."""

    file: str
    rows: int = 0
    words: int = 0
    skipped: bool = False
    error: str = ""
    fatal: bool = False
    warnings: tuple[str, ...] = ()
    pid: int = 0


_REPORT = pa.schema(
    {
        "file": pa.string(),
        "rows": pa.int64(),
        "words": pa.int64(),
        "skipped": pa.bool_(),
        "error": pa.string(),
        "fatal": pa.bool_(),
        "warnings": pa.list_(pa.string()),
        "pid": pa.int64(),
    }
)


def embed_partitions(
    files: Path | str | Iterable[Path | str],
    output: Path | str,
    *,
    output_format: OutputFormat = "parquet",
    replace_invalid: bool = False,
    actors: int | None = None,
    num_cpus: float = 1,
    num_gpus: float | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> EmbeddedPartitions:
    """Write the vectors of each input file to a file with the same stem, with Ray Data.

    An output has the columns of its input, `tokens` and `vectors`, and one row per input row, in
    the same order. If the input has no column `id`, the row number is added as `id`, so that
    `elmore.read_vectors` reads the output. After an interruption, call the function again: complete
    outputs are verified and kept, damaged ones are replaced.

    Ray is used if it is initialized. Otherwise this connects to a running cluster, such as the one
    in `RAY_ADDRESS`, or starts Ray on this machine until the call returns.

    Args:
        files: .parquet, .jsonl or .txt files, the latter two optionally compressed: a file, a
            folder, a pattern such as `parts/*.parquet`, or several of these. All machines need
            access to them.
        output: Folder to write to, on storage that all machines share.
        output_format: `parquet`, or `arrow`, which is much faster to write.
        replace_invalid: In .txt files, replace bytes that are not UTF-8 by U+FFFD.
        actors: Number of processes that embed; by default as many as the cluster has room for now.
        num_cpus: CPUs per actor. It computes with as many threads, at least one.
        num_gpus: GPUs per actor; 0.5 lets two actors share one. By default 1 if the cluster has
            GPUs, otherwise 0.
        device: `cpu` and `cuda` are short for `num_gpus=0` and `num_gpus=1`.
        progress: Shows how many partitions are finished, see `elmore.embed_file`. The items are
            `Report`s.
        options: The arguments of `ArrowEmbedder`: `model`, `column`, `layers`, `dtype` and those of
            `elmore.load`. All machines need the model.

    Raises:
        InputError: If the arguments do not fit each other, the files or the cluster; or if some
            partitions could not be embedded, with all others complete.
    """
    ray = require_ray()
    began = time.monotonic()
    check_resources(actors, num_cpus, num_gpus, device)
    check("output_format", output_format, one_of(*get_args(OutputFormat)))
    paths, folder = find_partitions(files), Path(output).resolve()
    if any(path.is_relative_to(folder) for path in paths):
        raise InputError(f"{folder} has input files. Choose another output folder.")
    options = _with_absolute_paths(options)
    # The driver loads the model only to identify it, so it needs no GPU.
    local = ArrowEmbedder(**options, device="cpu")
    with naming_file(paths[0]):  # before Ray is started
        local.schema(open_partition(paths[0], replace_invalid=replace_invalid).schema)
    settings = run_settings(local, replace_invalid=replace_invalid)
    with lock(folder):
        open_output(folder, settings)
        remove_leftovers_in(folder)
        with connect(ray) as is_local:
            num_gpus = gpus_per_actor(ray, num_gpus, device)
            size = count_actors(ray, actors, num_cpus, num_gpus, may_grow=not is_local)
            embed = PartitionEmbedder(
                _new_embedder(options, num_cpus, num_gpus),
                folder,
                settings,
                output_format=output_format,
                replace_invalid=replace_invalid,
            )
            size = min(size, len(paths))
            with closing(_run(ray, embed, paths, size, num_cpus, num_gpus)) as reports:
                shown = track(reports, f"of {len(paths):,} partitions", progress)
                finished = _collect(shown, len(paths))
        remove_leftovers_in(folder)
    return EmbeddedPartitions(
        folder=Path(output),
        partitions=len(finished),
        skipped=sum(report.skipped for report in finished),
        sentences=sum(report.rows for report in finished),
        words=sum(report.words for report in finished),
        seconds=time.monotonic() - began,
    )


def embed_dataset(
    dataset: "Dataset",
    *,
    batch_size: int = 1024,
    actors: int | None = None,
    num_cpus: float = 1,
    num_gpus: float | None = None,
    device: str = "auto",
    **options: Any,
) -> "Dataset":
    """Add the columns `tokens` and `vectors` to a dataset of Ray Data.

    Args:
        dataset: The dataset.
        batch_size: Rows that are embedded at once. All of their vectors are in memory.
        actors: Number of processes that embed; by default as many as leave one CPU of the cluster
            free. If actors take all CPUs, Ray Data waits forever, because it cannot read.
        num_cpus: See `embed_partitions`.
        num_gpus: See `embed_partitions`.
        device: See `embed_partitions`.
        options: The arguments of `ArrowEmbedder`. All machines need the model.
    """
    ray = require_ray()
    check_resources(actors, num_cpus, num_gpus, device)
    num_gpus = gpus_per_actor(ray, num_gpus, device)
    size = count_actors(ray, actors, num_cpus, num_gpus, may_grow=True, free_cpus=1)
    total = ray.cluster_resources().get("CPU", 0)
    if total - size * num_cpus < 1:
        warn_user(
            f"{size} actors with {num_cpus:g} CPUs each leave less than one of the {total:g} CPUs "
            "of the cluster for reading. Ray Data then waits forever, unless the cluster grows: "
            "use fewer actors, or fewer CPUs for each.",
        )
    options = _with_absolute_paths(options)
    embed = _new_embedder(options, num_cpus, num_gpus)
    return dataset.map_batches(
        _EmbedRows,
        fn_constructor_args=[embed],
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=size),
        num_cpus=num_cpus,
        num_gpus=num_gpus,
    )


class _EmbedRows:
    """An actor: Ray Data makes actors of classes only."""

    def __init__(self, embed: ArrowEmbedder) -> None:
        self._embed = embed

    def __call__(self, table: pa.Table) -> pa.Table:
        return self._embed(table)


class _EmbedFiles:
    """An actor: the names of files in, reports out."""

    def __init__(self, embed: PartitionEmbedder) -> None:
        self._embed = embed

    def __call__(self, table: pa.Table) -> pa.Table:
        reports = [self._report(Path(name))._asdict() for name in table["file"].to_pylist()]
        return pa.Table.from_pylist(reports, _REPORT)

    def _report(self, file: Path) -> Report:
        report = Report(str(file), pid=os.getpid())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            try:
                partition = self._embed(file)
            except (InputError, MissingExtraError, MemoryError, torch.OutOfMemoryError) as error:
                return report._replace(error=f"{error}" or "not enough memory")
            except OSError as error:  # such as a full disk: the next partition would fail, too
                return report._replace(error=f"{file}: {error}", fatal=True)
        return report._replace(
            rows=partition.rows,
            words=partition.words,
            skipped=partition.skipped,
            warnings=tuple({f"{warning.message}": None for warning in caught}),
        )


def _run(
    ray: Any,
    embed: PartitionEmbedder,
    paths: list[Path],
    actors: int,
    num_cpus: float,
    num_gpus: float,
) -> Generator[Report, None, None]:
    """Yield reports as partitions are finished.

    Actors that die are restarted by Ray, and partitions that they had not finished start again.
    """
    dataset = ray.data.from_arrow([pa.table({"file": [str(path)]}) for path in paths])
    reports = dataset.map_batches(
        _EmbedFiles,
        fn_constructor_args=[embed],
        batch_size=1,
        batch_format="pyarrow",
        # A task takes minutes, so none should wait for an actor while another one is idle.
        compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=1),
        num_cpus=num_cpus,
        num_gpus=num_gpus,
    )
    reports.context.enable_progress_bars = False
    for table in reports.iter_batches(batch_size=None, batch_format="pyarrow"):
        for values in table.to_pylist():
            yield Report(**values)


def _collect(reports: Iterable[Report], total: int) -> list[Report]:
    """Return all reports; raise `InputError` if there are errors."""
    finished: list[Report] = []
    failed: list[Report] = []
    warned: set[str] = set()
    for report in reports:
        (failed if report.error else finished).append(report)
        if report.fatal:
            break
        for message in {*report.warnings} - warned:
            warned.add(message)
            warn_user(message)
    if failed:
        shown = "; ".join(report.error for report in failed[:_FAILURES_SHOWN])
        more = (
            f"; and {len(failed) - _FAILURES_SHOWN} more" if len(failed) > _FAILURES_SHOWN else ""
        )
        raise InputError(
            f"{len(finished):,} of {total:,} partitions are complete. The first errors of the "
            f"others: {shown}{more}"
        )
    return finished


def _new_embedder(options: dict[str, Any], num_cpus: float, num_gpus: float) -> ArrowEmbedder:
    """Return the embedder of an actor, with a thread per CPU."""
    device = "cuda" if num_gpus else "cpu"
    return ArrowEmbedder(**options, device=device, threads=max(1, int(num_cpus)))


def _with_absolute_paths(options: dict[str, Any]) -> dict[str, Any]:
    """Make the paths of files absolute, because actors may run in other folders."""
    files = {
        name: Path(value).resolve()
        for name, value in options.items()
        if name in ("model", "options", "vocab") and value is not None and Path(value).exists()
    }
    return {**options, **files}
