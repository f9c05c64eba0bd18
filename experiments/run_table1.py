"""Train the models of Table 1, several at once on one GPU.

Run as: python experiments/run_table1.py DATA -o RUNS --vectors glove.npz --model my-elmo

RUNS/ROW-KIND-SEED/    one run; KIND is baseline or elmo
RUNS/logs/             output of the runs
RUNS/table1.md         the table, updated after each run

`ROWS` lists the files in DATA, which may be compressed (.xz, .gz). Runs that hit the time limit
keep their best weights so far. A failed run is retried once. If the script is interrupted, the same
command resumes incomplete runs and starts missing ones.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from snli_protocol import HELD_OUT, LEARNED, split_dev
from table1 import read_rows, table

SUFFIXES = ("", ".xz", ".gz")
RESERVED = 45.0
"""Seconds reserved for scoring the test set and writing the model."""


class Row(NamedTuple):
    """A dataset: its task and files, and the approximate minutes of a run on an H200."""

    task: str
    train: str
    dev: str
    test: str | None
    minutes: float
    settings: tuple[str, ...] = ()
    large: bool = False
    """Whether to run only one seed, because scores of large datasets hardly depend on the seed."""


ROWS = {
    "squad": Row("qa", "squad/train-v1.1.json", "squad/dev-v1.1.json", None, 12, large=True),
    "srl": Row(
        "srl", "srl/ewt.train.conll", "srl/ewt.dev.conll", "srl/ewt.test.conll", 10, large=True
    ),
    "coref": Row(
        "coref",
        "coref/ontogum.train.conll",
        "coref/ontogum.dev.conll",
        "coref/ontogum.test.conll",
        8,
    ),
    "snli": Row(
        "entailment",
        "snli/snli_1.0_train_subset.jsonl",
        "snli/snli_1.0_dev.jsonl",
        "snli/snli_1.0_test.jsonl",
        5,
        ("data.class_weights=balanced",),
    ),
    "conll2003": Row(
        "ner",
        "ner/conll2003/eng.train",
        "ner/conll2003/eng.testa",
        "ner/conll2003/eng.testb",
        5,
    ),
    "sst5": Row("sentiment", "sst/train.txt", "sst/dev.txt", "sst/test.txt", 4),
    "sick": Row(
        "entailment", "snli/SICK_train.txt", "snli/SICK_trial.txt", "snli/SICK_test.txt", 2
    ),
    "wnut17": Row(
        "ner",
        "ner/wnut17/wnut17train.conll",
        "ner/wnut17/emerging.dev.conll",
        "ner/wnut17/emerging.test.annotated",
        2,
    ),
}
"""Sorted by duration, because the longest runs should start first."""


class Run(NamedTuple):
    """A training run: one cell of the table with one seed."""

    row: str
    kind: str
    seed: int

    @property
    def name(self) -> str:
        """Name of the folder."""
        return f"{self.row}-{self.kind}-{self.seed}"


def plan(rows: Sequence[str], seeds: int) -> list[Run]:
    """Return all runs: first those that complete the table with one seed, then other seeds."""
    return [
        Run(row, kind, seed)
        for seed in range(seeds)
        for row in ROWS
        if row in rows and (seed == 0 or not ROWS[row].large)
        for kind in ("elmo", "baseline")
    ]


def command(run: Run, args: argparse.Namespace, minutes: float) -> list[str]:
    """Return the command line of a run."""
    row, folder = ROWS[run.row], args.output / run.name
    train, dev = [find(args.data, row.train)], find(args.data, row.dev)
    if run.row == "snli":
        train.append(args.output / "snli" / LEARNED)
        dev = args.output / "snli" / HELD_OUT
    arguments = [sys.executable, "-m", "elmore", "train", row.task, "-o", folder, "--dev", dev]
    arguments += [part for path in train for part in ("--train", path)]
    arguments += ["--test", find(args.data, row.test)] if row.test and not args.dev_only else []
    arguments += ["--no-elmo"] if run.kind == "baseline" else ["--init-bilm", args.model]
    arguments += ["--vectors", args.vectors] if args.vectors else []
    arguments += [f"--set={setting}" for setting in (*row.settings, *args.set)]
    arguments += ["--seed", run.seed, "--max-minutes", f"{minutes:.2f}", "--device", args.device]
    if (folder / "config.toml").exists():
        arguments.append("--resume")
    return list(map(str, arguments))


def find(data: Path, name: str) -> Path:
    """Return the path of a file, compressed or not."""
    for suffix in SUFFIXES:
        if (path := data / f"{name}{suffix}").exists():
            return path
    sys.exit(f"run_table1: {data / name} does not exist, with or without {', '.join(SUFFIXES[1:])}")


def run_all(args: argparse.Namespace, environment: dict[str, str]) -> None:
    """Run `args.jobs` runs at a time until all are complete or the time is up."""
    end = time.monotonic() + 60 * args.minutes - RESERVED
    (args.output / "logs").mkdir(parents=True, exist_ok=True)
    if "snli" in args.rows:
        split_dev(find(args.data, ROWS["snli"].dev), args.output / "snli")
    waiting = deque(r for r in plan(args.rows, args.seeds) if not is_complete(args.output, r))
    for run in waiting:
        command(run, args, 0)  # exits if a file is missing
    running: dict[Run, subprocess.Popen[bytes]] = {}
    failures: Counter[Run] = Counter()
    try:
        while waiting or running:
            while waiting and len(running) < args.jobs:
                run = waiting.popleft()
                left = (end - time.monotonic()) / 60
                if left < ROWS[run.row].minutes / 3:
                    print(f"{run.name}: not started, only {left:.1f} minutes left", flush=True)
                    continue
                with (args.output / "logs" / f"{run.name}.log").open("ab") as log:
                    running[run] = subprocess.Popen(
                        command(run, args, left), stdout=log, stderr=log, env=environment
                    )
            time.sleep(0.5)
            for run in [run for run, process in running.items() if process.poll() is not None]:
                code = running.pop(run).returncode
                print(f"{run.name}: {result(args.output, run, code)}", flush=True)
                (args.output / "table1.md").write_text(f"{table(read_rows(args.output))}\n")
                failures[run] += code != 0
                if code != 0 and failures[run] < 2:
                    waiting.append(run)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()


def is_complete(output: Path, run: Run) -> bool:
    """Return whether a run is complete."""
    return (output / run.name / "metrics.json").exists()


def result(output: Path, run: Run, code: int) -> str:
    """Return one line with the scores of a run, or the last line of its log."""
    if code != 0 or not is_complete(output, run):
        log = (output / "logs" / f"{run.name}.log").read_text(errors="replace").strip()
        return f"failed with code {code}: {log.rsplit(chr(10), 1)[-1]:.200}"
    summary = json.loads((output / run.name / "metrics.json").read_text(encoding="utf-8"))
    shown = "  ".join(
        f"{split} {100 * next(iter(scores.values())):.2f}"
        for split, scores in summary["scores"].items()
    )
    limit = ", hit the time limit" if summary["cut_short"] else ""
    return f"{shown}  {summary['epochs']} epochs in {summary['seconds']:.0f} s{limit}"


@contextmanager
def start_mps(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Start NVIDIA's MPS server, if it is installed, and yield the environment of its clients.

    With MPS, kernels of several processes overlap. Without it, processes take turns on the GPU, and
    small kernels leave most of it idle.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield environment
        return
    probe = ["timeout", "60", sys.executable, "-c", "import torch; torch.ones(1, device='cuda')"]
    # A temporary folder, because the path of a socket must be short.
    with TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as pipe:
        folders = {"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": pipe}
        mps_environment = environment | folders
        subprocess.run([control, "-d"], env=mps_environment, check=False)
        works = subprocess.run(probe, env=mps_environment, check=False).returncode == 0
        print("MPS is enabled" if works else "MPS does not work; continuing without it", flush=True)
        try:
            yield mps_environment if works else environment
        finally:
            subprocess.run([control], input=b"quit\n", env=mps_environment, check=False)


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, help="word vectors for all runs")
    parser.add_argument("--model", default="en", help="name or path of the biLM")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=12, help="number of simultaneous runs")
    parser.add_argument(
        "--minutes", type=float, default=25.0, help="time limit for all runs together"
    )
    parser.add_argument("--set", action="append", default=[], help="a setting for all runs")
    parser.add_argument(
        "--dev-only",
        action="store_true",
        help="do not evaluate on the test sets; use this to choose settings",
    )
    parser.add_argument("--device", default="cuda")
    return parser.parse_args(arguments)


def main() -> None:
    """Run everything and print the table."""
    args = parse_args()
    threads = max(1, (os.cpu_count() or 1) // args.jobs)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    with start_mps(environment) as mps_environment:
        run_all(args, mps_environment)
    print(table(read_rows(args.output)))


if __name__ == "__main__":
    main()
