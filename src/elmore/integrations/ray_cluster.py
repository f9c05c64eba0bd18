"""A Ray cluster: connected to or started, and the CPUs and GPUs of its actors."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from elmore.errors import InputError, require
from elmore.schema import at_least, check

# When Ray is started here: no reports to its developers, and no messages about normal operation.
_LOCAL_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


@contextmanager
def connect(ray: Any) -> Iterator[bool]:
    """Connect to Ray, or start it; yield whether it was started here, and so cannot grow."""
    if ray.is_initialized():
        yield False
        return
    try:
        _init(ray, "auto", log_to_driver=False)
        is_local = False
    except ConnectionError as error:
        if "RAY_ADDRESS" in os.environ:
            raise InputError(f"cannot connect to the cluster in RAY_ADDRESS: {error}") from error
        for name, value in _LOCAL_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        _init(ray, "local", include_dashboard=False, **quiet)
        is_local = True
    logger = logging.getLogger("ray.data")
    level = logger.level
    try:
        if is_local:
            logger.setLevel(logging.ERROR)
        yield is_local
    finally:
        logger.setLevel(level)
        ray.shutdown()


def _init(ray: Any, address: str, **options: Any) -> None:
    """Call `ray.init`, but keep the handler of SIGTERM, which it replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, **options)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def count_actors(
    ray: Any,
    actors: int | None,
    num_cpus: float,
    num_gpus: float,
    *,
    may_grow: bool,
    free_cpus: float = 0,
) -> int:
    """Return the number of actors.

    Without a number, it is as many as there is room for, with `free_cpus` left free on the largest
    machine.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = 0
    for node in sorted(nodes, key=lambda node: -node.get("CPU", 0)):
        with_cpus = (node.get("CPU", 0) - free_cpus) // num_cpus
        with_gpus = node.get("GPU", 0) // num_gpus if num_gpus else with_cpus
        room += max(0, int(min(with_cpus, with_gpus)))
        free_cpus = 0
    if not may_grow and not room:
        raise InputError(
            f"this machine does not have {num_cpus:g} CPUs and {num_gpus:g} GPUs for an actor"
        )
    if not may_grow:
        return min(room, actors or room)
    return actors or max(1, room)


def gpus_per_actor(ray: Any, num_gpus: float | None, device: str) -> float:
    """Return the GPUs per actor: by default one if the cluster has GPUs, otherwise none."""
    if num_gpus is not None:
        return num_gpus
    if device == "auto":
        return int(ray.cluster_resources().get("GPU", 0) > 0)
    return int(device == "cuda")


def check_resources(
    actors: int | None, num_cpus: float, num_gpus: float | None, device: str
) -> None:
    """Raise `InputError` unless the arguments of `embed_partitions` fit each other."""
    check("actors", actors, at_least(1), optional=True)
    if num_cpus <= 0:
        raise InputError(f"num_cpus must be greater than 0, got {num_cpus:g}")
    if num_gpus is not None and num_gpus < 0:
        raise InputError(f"num_gpus must be 0 or more, got {num_gpus:g}")
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f"device must be auto, cpu or cuda, got {device!r}: Ray assigns GPUs")
    if num_gpus is not None and device == ("cpu" if num_gpus else "cuda"):
        raise InputError(f"device {device} does not go with {num_gpus:g} GPUs per actor")


def require_ray() -> Any:
    """Return the module `ray`; raise `MissingExtraError` if it is not installed."""
    require("ray.data", extra="ray")  # needs more packages than Ray itself
    return require("ray", extra="ray")
