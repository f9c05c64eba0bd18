"""`elmore serve`: the HTTP API and the web page."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from elmore.cli.options import REPEATED
from elmore.server.setup import Limits

DEFAULT_LIMITS = Limits()


def serve(
    *,
    port: int = 8000,
    host: str = "127.0.0.1",
    model: Annotated[tuple[str, ...], REPEATED, Parameter(alias="-m")] = (),
    task: Annotated[tuple[str, ...], REPEATED] = (),
    corpus: Annotated[tuple[str, ...], REPEATED] = (),
    workers: int = 1,
    threads: int | None = None,
    device: str = "auto",
    precision: Literal["fp32", "bf16", "int8"] = "fp32",
    token_file: Path | None = None,
    limits: Annotated[Limits, Parameter(name="*")] = DEFAULT_LIMITS,
) -> None:
    """Serve vectors, neighbors and tasks over HTTP, with a web page to explore them.

    Example: `elmore serve --port 8000 --task runs/ner`

    Args:
        port: Port to listen on; 0 for any free one.
        host: Address to listen on; by default only this machine can connect.
        model: Model, as in other commands; repeat for several. NAME=MODEL sets its name in the
            API. By default en and, if it is installed, ko.
        task: Folder of a trained task, or the name of an installed one; repeat for several.
            NAME=FOLDER sets its name in the API; `--task none` serves no task. By default, the
            installed tasks of the models.
        corpus: Text file in which neighbors are searched, one sentence per line; MODEL=FILE if
            there are several models. By default, English and Korean models search a sample.
        workers: Processes that compute; each has its own copy of the models.
        threads: Threads of each worker; by default as many as PyTorch chooses.
        device: Where to compute: auto, cpu, cuda or cuda:NUMBER.
        precision: fp32 is full precision; bf16 and int8 (for CPUs) are faster.
        token_file: File with a token that clients must send: Authorization: Bearer TOKEN.
    """
    from elmore.server.run import is_loopback
    from elmore.server.run import serve as run
    from elmore.server.setup import (
        Setup,
        choose_tasks,
        default_models,
        parse_corpora,
        parse_names,
        read_token,
    )

    models = parse_names(model or default_models())
    setup = Setup(
        models=models,
        tasks=choose_tasks(task, models),
        corpora=parse_corpora(corpus, models),
        limits=limits,
        device=device,
        precision=precision,
        threads=threads,
    )
    token = read_token(token_file) if token_file else None
    if token is None and not is_loopback(host):
        print("elmore: without --token-file, everyone who can connect can use it", file=sys.stderr)
    names = ", ".join((*setup.models, *setup.tasks))

    def announce(address: str) -> None:
        print(f"{address} serves {names}; stop with Ctrl-C", flush=True)

    print(f"loading {names}", file=sys.stderr)
    run(setup, host=host, port=port, workers=workers, token=token, on_ready=announce)
