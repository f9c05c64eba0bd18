"""Section 5.3 of the paper: WSD (Table 5) and POS tagging (Table 6) by layer of the biLM.

Run as: python experiments/intrinsic.py MODEL --wsd DIR --pos DIR [--precision bf16] [--json]

Files may be compressed (.xz); Evaluation_Datasets is a folder or a .tar.xz archive:

    wsd/  semcor.data.xml  semcor.gold.key.txt  index.sense
          Evaluation_Datasets/senseval2/senseval2.data.xml, senseval2.gold.key.txt, ...
    pos/  *train.conllu  *dev.conllu  *test.conllu
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import elmore
from elmore.analysis.pos import TagSet, embed_words, probe_pos, read_conllu
from elmore.analysis.wsd import (
    Instance,
    average_senses,
    disambiguate,
    f1,
    instances_of,
    read_first_senses,
    read_wsd,
)
from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.progress import with_progress

SETS = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")
COLUMNS = ("ALL", *SETS)
FIRST_SENSE = "first sense"
SUFFIXES = ("", ".xz")

Table = dict[str, dict[str, float]]
"""Scores in percent, by row (the baseline, then the layers) and column."""


def find(folder: Path, pattern: str) -> Path:
    """Return the only file that matches a pattern, compressed or not."""
    paths = sorted(path for suffix in SUFFIXES for path in folder.glob(pattern + suffix))
    if len(paths) != 1:
        raise InputError(f"{folder} has {len(paths)} files {pattern} or {pattern}.xz; expected one")
    return paths[0]


@contextmanager
def unpacked(folder: Path, name: str) -> Iterator[Path]:
    """Yield a folder, which is temporary if it has to be unpacked from an archive."""
    if (folder / name).is_dir():
        yield folder / name
        return
    with tempfile.TemporaryDirectory(prefix="elmore-") as temporary:
        # filter="data" rejects members that would be written outside of the folder.
        shutil.unpack_archive(find(folder, f"{name}.tar"), temporary, filter="data")
        yield Path(temporary) / name


def measure_wsd(embedder: Embedder, folder: Path, table: Table) -> None:
    """Add the F1 of each layer, and of WordNet's first sense, to the table."""
    first_senses = read_first_senses(find(folder, "index.sense"))
    with unpacked(folder, "Evaluation_Datasets") as sets:
        texts = {
            name: read_wsd(
                find(sets / name, f"{name}.data.xml"), find(sets / name, f"{name}.gold.key.txt")
            )
            for name in SETS
        }
    semcor = read_wsd(find(folder, "semcor.data.xml"), find(folder, "semcor.gold.key.txt"))
    averages = average_senses(
        embedder, with_progress(semcor, "SemCor sentences embedded", len(semcor))
    )
    all_instances: list[Instance] = []
    all_predictions: dict[str, list[str | None]] = {row: [] for row in table}
    for name, text in texts.items():
        instances = instances_of(text)
        first = [first_senses.get(instance.lexeme) for instance in instances]
        predictions = [first, *disambiguate(embedder, text, averages, first_senses)]
        all_instances += instances
        for row, senses in zip(table, predictions, strict=True):
            table[row][name] = 100 * f1(senses, instances)
            all_predictions[row] += senses
    for row, senses in all_predictions.items():
        table[row]["ALL"] = 100 * f1(senses, all_instances)


def measure_pos(embedder: Embedder, folder: Path, tag_set: TagSet, table: Table) -> None:
    """Add the accuracy of a linear classifier on each layer to the table."""
    texts = [
        read_conllu(find(folder, f"*{name}.conllu"), tag_set) for name in ("train", "dev", "test")
    ]
    words = [
        embed_words(embedder, with_progress(text, "treebank sentences embedded", len(text)))
        for text in texts
    ]
    print("training a linear classifier on each layer", file=sys.stderr)
    for layer, accuracy in enumerate(probe_pos(*words)):
        table[f"layer {layer}"]["POS"] = 100 * accuracy


def show(table: Table) -> None:
    """Print the table: one row for the baseline and one per layer."""
    columns = [name for name in (*COLUMNS, "POS") if any(name in row for row in table.values())]
    print(" " * 11, *(f"{name:>11}" for name in columns))
    for name, row in table.items():
        if row:
            scores = (f"{row[column]:11.1f}" if column in row else " " * 11 for column in columns)
            print(f"{name:11}", *scores)


def main() -> None:
    """Run the requested evaluations and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="name or path of a model, as for elmore.load")
    parser.add_argument(
        "--wsd", type=Path, metavar="DIR", help="folder of SemCor, WordNet and the evaluation sets"
    )
    parser.add_argument("--pos", type=Path, metavar="DIR", help="folder of a treebank in CoNLL-U")
    parser.add_argument(
        "--tags", choices=("xpos", "upos"), default="xpos", help="tag set of the treebank"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--precision", default="fp32", help="fp32, bf16 or, on a CPU, int8")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    if not (args.wsd or args.pos):
        parser.error("nothing to measure: give --wsd DIR, --pos DIR or both")
    try:
        table = measure(args)
    except (InputError, OSError) as error:
        parser.error(str(error))
    if args.json:
        print(json.dumps(table))
    else:
        show(table)


def measure(args: argparse.Namespace) -> Table:
    """Load the model and fill the table."""
    embedder = elmore.load(args.model, device=args.device, precision=args.precision)
    table: Table = {FIRST_SENSE: {}}
    table |= {f"layer {layer}": {} for layer in range(embedder.num_layers)}
    if args.wsd:
        measure_wsd(embedder, args.wsd, table)
    if args.pos:
        measure_pos(embedder, args.pos, args.tags, table)
    return table


if __name__ == "__main__":
    main()
