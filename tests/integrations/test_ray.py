"""Ray Data. Oracles: `Embedder.embed`; the process ids, names and times of files."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import elmore
from elmore.errors import InputError, MissingExtraError
from elmore.integrations import ray as integration
from elmore.integrations import ray_cluster
from elmore.integrations.ray import Report, embed_dataset, embed_partitions
from tests.cli.conftest import assert_rejected, run  # noqa: F401

WORDS = [*"abcdefgh", "bank", "banks", "river", "rates", "raised", "again", "while", "sat"]
ROWS = 2000
"""Rows of a partition: enough to find an actor in the middle of one."""
ELMORE = [sys.executable, "-c", "from elmore.cli import main; main()"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster with three CPUs; yields its address."""
    import ray

    ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[str]]:
    """Sentences by the partition that has them."""
    folder = tmp_path_factory.mktemp("parts")
    rng = np.random.default_rng(0)
    corpus = {}
    for number in range(8):
        lengths = rng.integers(1, 25, ROWS)
        lines = [" ".join(rng.choice(WORDS, length)) for length in lengths]
        path = folder / f"part-{number}.parquet"
        pq.write_table(
            pa.table({"key": [f"{number}/{i}" for i in range(ROWS)], "text": lines}), path
        )
        corpus[path] = lines
    return corpus


def assert_outputs(output: Path, corpus: dict[Path, list[str]], model: Path) -> None:
    """Assert that each row has one output, in order, with the vectors of `embed`."""
    names = {"run.json", *(path.name for path in corpus)}
    assert {file.name for file in output.iterdir()} == names
    elmo = elmore.load(model, device="cpu")
    for path, lines in corpus.items():
        table = pq.read_table(output / path.name, columns=["key", "text"])
        assert table.to_pydict() == pq.read_table(path).to_pydict()
        rows = [*elmore.read_vectors(output / path.name)]
        assert [row.id for row in rows] == [*range(len(lines))]
        for row, vectors in zip(rows, elmo.embed(lines, layers="top"), strict=True):
            np.testing.assert_allclose(row.vectors, vectors, rtol=0, atol=1e-6)


def written_by(pid: int) -> list[str]:
    """Return the temporary files that a process has open."""
    try:
        links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    except FileNotFoundError:
        return []
    return [link.name for link in links if link.suffix == ".tmp"]


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_no_row_is_lost_or_doubled_when_an_actor_is_killed(
    folder: Path, corpus: dict[Path, list[str]], tmp_path: Path
) -> None:
    killed, pids = [], {}

    def kill_one(reports: Iterable[Report], what: str) -> Iterator[Report]:
        assert what == "of 8 partitions"
        for report in reports:
            pids[Path(report.file).name] = report.pid
            yield report
            end = time.monotonic() + 10
            while not killed and time.monotonic() < end:
                if files := written_by(report.pid):
                    os.kill(report.pid, signal.SIGKILL)
                    killed.append((report.pid, files[0]))

    # As many actors as CPUs: nothing else needs one.
    result = embed_partitions(
        [*corpus], tmp_path / "out", model=folder, layers="top", actors=3, progress=kill_one
    )
    [(pid, file)] = killed
    [interrupted] = [name for name in pids if file.startswith(f".{name}.")]
    assert pids[interrupted] != pid
    assert result[1:5] == (8, 0, 8 * ROWS, sum(len(x.split()) for y in corpus.values() for x in y))
    assert_outputs(tmp_path / "out", corpus, folder)


@pytest.mark.ray
def test_run_is_resumed_after_the_driver_is_killed(
    folder: Path, corpus: dict[Path, list[str]], tmp_path: Path, cluster: str
) -> None:
    output = tmp_path / "out"
    pattern = next(iter(corpus)).with_name("*.parquet")
    command = [*ELMORE, "embed", pattern, "-o", output, "-m", folder]
    command += ["--layers", "top", "--engine", "ray", "--actors", "1"]
    driver = subprocess.Popen(command, env={**os.environ, "RAY_ADDRESS": cluster})
    while len([*output.glob("*.parquet")]) < 2:
        assert driver.poll() is None
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    before = {file.name: file.stat().st_mtime_ns for file in output.glob("*.parquet")}
    assert 2 <= len(before) < 8
    damaged = output / sorted(before)[0]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    result = embed_partitions([*corpus], output, model=folder, layers="top", actors=2)
    after = {file.name: file.stat().st_mtime_ns for file in output.glob("*.parquet")}
    assert result.partitions == 8
    assert result.sentences == 8 * ROWS
    assert result.skipped >= len(before) - 1
    kept = {name for name in before if after[name] == before[name]}
    assert kept == set(before) - {damaged.name}
    assert_outputs(output, corpus, folder)


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("always:most letters of the text are not Latin")
def test_command_reports_results_and_failed_partitions(
    run,  # noqa: F811
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("parts").mkdir()
    Path("parts/a.txt").write_text("He sat by the bank.\n\nBanks fail\n")
    Path("parts/b.txt").write_bytes(b"fine\n\xff\n")
    Path("parts/c.txt").write_text("\uc624\ub298 \uc740\ud589\uc5d0 \uac14\ub2e4\n" * 20)
    command = [
        "embed",
        "parts/a.txt",
        "parts/[bc].txt",
        "-o",
        "out",
        "-m",
        folder,
        "--engine",
        "ray",
    ]
    command += ["--output-format", "arrow", "--actors", 1]
    result = run(*command)
    assert "most letters of the text are not Latin" in result.err
    result.err = "".join(result.err.partition("elmore: 2 of 3")[1:])
    assert_rejected(result, "elmore: 2 of 3 partitions are complete")
    assert "parts/b.txt, line 2: byte 0xff" in result.err
    Path("parts/b.txt").write_text("fixed\n")
    result = run(*command, "--json")
    assert result.code == 0
    values = json.loads(result.out)
    assert values.pop("seconds") > 0
    assert values == {
        "folder": "out", "partitions": 3, "skipped": 2, "sentences": 24, "words": 1
    }  # fmt: skip
    result = run(*command)
    assert result.out == "out is complete: 24 sentences in 3 partitions\n"
    assert [row.tokens for row in elmore.read_vectors("out/a.arrow")] == [
        ["He", "sat", "by", "the", "bank", "."], [], ["Banks", "fail"]
    ]  # fmt: skip


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore:The minimum number of concurrent actors")
def test_dataset_gets_vectors(folder: Path, corpus: dict[Path, list[str]]) -> None:
    """All but one CPU are used by default: Ray Data would wait forever for the last one."""
    import ray

    paths = [str(path) for path in corpus][:3]
    dataset = embed_dataset(ray.data.read_parquet(paths), model=folder, layers="top", batch_size=99)
    rows = pa.concat_tables(dataset.iter_batches(batch_size=None, batch_format="pyarrow"))
    assert rows.column_names == ["key", "text", "tokens", "vectors"]
    assert rows["vectors"].type == pa.list_(pa.list_(pa.float32(), 32))
    by_key = dict(zip(rows["key"].to_pylist(), rows["vectors"], strict=True))
    assert len(by_key) == rows.num_rows == 3 * ROWS
    elmo = elmore.load(folder, device="cpu")
    for number, lines in enumerate([*corpus.values()][:3]):
        for i, vectors in enumerate(elmo.embed(lines[:50], layers="top")):
            actual = by_key[f"{number}/{i}"].values.flatten().to_numpy()
            np.testing.assert_allclose(actual.reshape(vectors.shape), vectors, rtol=0, atol=1e-6)
    with pytest.warns(UserWarning, match="3 actors with 1 CPUs each leave less than one of the 3"):
        embed_dataset(ray.data.range(1), model=folder, actors=3)


def fake_ray(*nodes: dict[str, float]) -> SimpleNamespace:
    return SimpleNamespace(
        nodes=lambda: (
            [{"Alive": True, "Resources": n} for n in nodes]
            + [{"Alive": False, "Resources": {"CPU": 99, "GPU": 99}}]
        ),
        cluster_resources=lambda: {"GPU": sum(n.get("GPU", 0) for n in nodes)},
    )


@pytest.mark.parametrize(
    ("nodes", "num_cpus", "num_gpus", "free_cpus", "expected"),
    [
        ([{"CPU": 4}], 1, 0, 0, 4),
        ([{"CPU": 4}], 1, 0, 1, 3),
        ([{"CPU": 2}, {"CPU": 8}], 4, 0, 0, 2),
        ([{"CPU": 2}, {"CPU": 8}], 2, 0, 1, 4),
        ([{"CPU": 2}, {"CPU": 8, "GPU": 2}], 1, 1, 0, 2),
        ([{"CPU": 8, "GPU": 2}], 1, 0.5, 0, 4),
        ([{"CPU": 3, "GPU": 2}], 1, 0.5, 1, 2),
        ([{"CPU": 2}], 4, 0, 0, 1),  # until the cluster grows
    ],
)
def test_default_number_of_actors_is_what_the_machines_have_room_for(
    nodes: list, num_cpus: float, num_gpus: float, free_cpus: float, expected: int
) -> None:
    ray = fake_ray(*nodes)
    count = ray_cluster.count_actors(
        ray, None, num_cpus, num_gpus, may_grow=True, free_cpus=free_cpus
    )
    assert count == expected


def test_number_of_actors_is_limited_only_by_a_cluster_that_cannot_grow() -> None:
    ray = fake_ray({"CPU": 2})
    assert ray_cluster.count_actors(ray, 9, 1, 0, may_grow=True) == 9
    assert ray_cluster.count_actors(ray, 9, 1, 0, may_grow=False) == 2
    with pytest.raises(InputError, match="does not have 3 CPUs and 0 GPUs for an actor"):
        ray_cluster.count_actors(ray, None, 3, 0, may_grow=False)


@pytest.mark.parametrize(
    ("gpus", "num_gpus", "device", "expected"),
    [
        (0, None, "auto", 0),
        (4, None, "auto", 1),
        (4, None, "cpu", 0),
        (0, None, "cuda", 1),
        (4, 0.5, "auto", 0.5),
        (4, 0, "auto", 0),
    ],
)
def test_gpus_are_used_if_there_are_any(
    gpus: int, num_gpus: float | None, device: str, expected: float
) -> None:
    ray = fake_ray({"CPU": 8, "GPU": gpus})
    assert ray_cluster.gpus_per_actor(ray, num_gpus, device) == expected
    embed = integration._new_embedder({}, 2.5, expected)
    assert embed.load_options["device"] == ("cuda" if expected else "cpu")
    assert embed.threads == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"actors": 0}, "actors must be at least 1"),
        ({"num_cpus": 0}, "num_cpus must be greater than 0"),
        ({"num_gpus": -1}, "num_gpus must be 0 or more"),
        ({"device": "cuda:1"}, "Ray assigns GPUs"),
        ({"device": "cpu", "num_gpus": 1}, "device cpu does not go with 1 GPUs"),
        ({"output_format": "h5"}, "output_format must be parquet or arrow"),
        ({"layers": 7}, "layers must be"),
        ({"column": "missing"}, "part-0.parquet: there is no column 'missing'"),
        ({"column": "key", "model": "missing"}, "missing"),
    ],
)
def test_invalid_options_are_rejected_before_ray_is_started(
    folder: Path,
    corpus: dict[Path, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict,
    message: str,
) -> None:
    monkeypatch.setattr(integration, "require_ray", lambda: SimpleNamespace())
    with pytest.raises((InputError, OSError), match=message):
        embed_partitions([*corpus], tmp_path / "out", **{"model": folder, **options})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none/*.parquet", "-o", "out"], "no files match none/*.parquet"),
        (["parts/*.txt", "-o", "parts"], "has input files. Choose another output folder"),
        (["parts/*.txt", "-o", "full"], "elmore did not write it"),
        (["parts/*.txt", "-o", "out", "--column", "words"], "no column 'words'"),
        (["parts/*.txt", "-o", "out", "--overwrite"], "not available with --engine ray"),
    ],
)
def test_command_rejects_invalid_input(
    run,  # noqa: F811
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(integration, "require_ray", lambda: SimpleNamespace())
    monkeypatch.chdir(tmp_path)
    for name in ("parts/a.txt", "full/mine.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("text\n")
    assert_rejected(run("embed", *arguments, "-m", folder, "--engine", "ray"), message)


def test_options_of_ray_are_rejected_without_it(run, tmp_path: Path) -> None:  # noqa: F811
    result = run("embed", "text.txt", "-o", tmp_path / "v.parquet", "--column", "a", "--actors", 2)
    assert_rejected(result, "column, actors: only with --engine ray")
    result = run("embed", "a.txt", "b.txt", "-o", tmp_path / "v.parquet")
    assert_rejected(result, "several files: join them")


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ray.data", raising=False)
    with pytest.raises(MissingExtraError, match=r'pip install "elmore\[ray\]"'):
        embed_partitions("*.txt", tmp_path / "out")
