"""Scores of a trained task with the biLM in fp32, bf16 and int8.

Run as: python experiments/precision.py RUN DATA

RUN is a folder written by `elmore train`, DATA a file of labeled examples.
"""

import argparse
from pathlib import Path
from typing import get_args

import elmore
from elmore.embedder import Precision
from elmore.tasks import load_task
from elmore.tasks.layers import LayerCache


def main() -> None:
    """Print a table of scores by precision."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path)
    args = parser.parse_args()
    trained = load_task(args.run, device="cpu")
    name = trained.task.score_name
    print(f"| precision | {name} |\n|---|---|")
    for precision in get_args(Precision):
        bilm = elmore.load(trained.config.elmo.model, device="cpu", precision=precision)
        trained.encode.layers = LayerCache(bilm)
        print(f"| {precision} | {100 * trained.evaluate(args.data)[name]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
