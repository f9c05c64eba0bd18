r"""The command `allennlp elmo` of AllenNLP 0.9: a text file to an HDF5 file.

# before
allennlp elmo sentences.txt vectors.hdf5 --all

# after
python -m elmore.compat.allennlp elmo sentences.txt vectors.hdf5 --all \
    --options-file options.json --weight-file weights.hdf5
"""

import argparse
from pathlib import Path

from elmore.compat.allennlp_embedder import ElmoEmbedder, check_output
from elmore.compat.command import exit_on_error
from elmore.progress import with_progress
from elmore.schema import at_least, check
from elmore.text.lines import read_lines


def create_arg_parser() -> argparse.ArgumentParser:
    """Return the parser of the options of `allennlp elmo`, and of `--stateless`."""
    parser = argparse.ArgumentParser(
        prog="python -m elmore.compat.allennlp",
        description="The command `allennlp elmo`. For other commands of AllenNLP, see `elmore`.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    elmo = commands.add_parser(
        "elmo",
        help="embed a text file",
        description="Embed tokenized sentences, one per line, with the options and results of "
        "`allennlp elmo` (version 0.9).",
    )
    add = elmo.add_argument
    add(
        "input_file", type=Path, help="text file: one sentence per line, tokens separated by spaces"
    )
    add("output_file", type=Path, help="HDF5 file to write; an existing file is replaced")
    layers = elmo.add_mutually_exclusive_group(required=True)
    for name, what in (
        ("all", "all layers"),
        ("top", "the top layer"),
        ("average", "the average of all layers"),
    ):
        layers.add_argument(
            f"--{name}",
            dest="output_format",
            action="store_const",
            const=name,
            help=f"write {what}",
        )
    add("--options-file", help="options.json of the model (required; nothing is downloaded)")
    add("--weight-file", help="HDF5 weights of the model (required; nothing is downloaded)")
    add("--batch-size", type=int, default=64, help="sentences per batch (default: %(default)s)")
    add("--cuda-device", type=int, default=-1, help="index of a GPU; -1 for the CPU (the default)")
    add("--forget-sentences", action="store_true", help="do not write sentence_to_index")
    add(
        "--use-sentence-keys",
        action="store_true",
        help="use sentences as keys instead of line numbers",
    )
    add("--file-friendly-logging", action="store_true", help="has no effect")
    for unused in ("--vocab-path", "--include-package"):
        add(unused, help="has no effect")
    add(
        "--stateless",
        action="store_true",
        help="vectors that do not depend on the other sentences; AllenNLP has no such option",
    )
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Invalid input prints a one-line error and exits with code 2."""
    parser = create_arg_parser()
    args = parser.parse_args(arguments)
    with exit_on_error(parser):
        check("--batch-size", args.batch_size, at_least(1))
        check_output(args.output_file, args.input_file, args.options_file, args.weight_file)
        embedder = ElmoEmbedder(
            args.options_file, args.weight_file, args.cuda_device, stateful=not args.stateless
        )
        embedder.embed_file(
            read_lines(args.input_file),
            args.output_file,
            args.output_format,
            args.batch_size,
            args.forget_sentences,
            args.use_sentence_keys,
            progress=with_progress,
        )
