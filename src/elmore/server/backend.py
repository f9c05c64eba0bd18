"""The models and trained tasks of a worker: a batch of requests in, their answers out."""

import warnings
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch

from elmore.embedder import Embedder
from elmore.errors import InputError
from elmore.server import schemas
from elmore.server.bodies import as_json, refuse
from elmore.server.messages import Answer
from elmore.server.model import LoadedModel
from elmore.server.setup import Setup
from elmore.tasks.saved import load as load_task
from elmore.tasks.saved import read_bilm_hash
from elmore.tasks.trained import TrainedTask

_MAX_CACHED_CHARACTERS = 20_000_000
"""Characters in requests, after which the cached words of the models are dropped."""


class Backend:
    """Loaded models and tasks."""

    def __init__(self, setup: Setup) -> None:
        if setup.threads:
            torch.set_num_threads(setup.threads)
        if unknown := set(setup.corpora) - set(setup.models):
            raise InputError(f"corpus of {unknown.pop()}: there is no such model")
        self.models = {
            name: LoadedModel(name, source, setup) for name, source in setup.models.items()
        }
        embedders = [model.embedder for model in self.models.values()]
        self.tasks = {
            name: _load_task(folder, embedders, setup) for name, folder in setup.tasks.items()
        }
        layers = (task.encode.layers for task in self.tasks.values())
        self._embedders = {*embedders, *(cache.embedder for cache in layers if cache)}
        self._characters = 0
        self._limits = setup.limits

    def describe(self) -> dict[str, Any]:
        """Return the models and tasks, in the form of `schemas.ModelsResponse`."""
        return {
            "models": [model.describe() for model in self.models.values()],
            "tasks": [
                {
                    "name": name,
                    "task": trained.task.name,
                    "elmo": trained.encode.layers is not None,
                    "inputs": list(trained.task.inputs),
                }
                for name, trained in self.tasks.items()
            ],
        }

    def answer(self, kind: str, name: str, requests: Sequence[Any]) -> list[Answer]:
        """Answer the requests of a batch, all to one model or all to one task."""
        self._limit_caches(sum(request.characters() for request in requests))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about unusual text, which is the client's affair
            if kind == "task":
                return self._predict(name, requests)
            return self.models[name].answer(requests)

    def _limit_caches(self, characters: int) -> None:
        """Drop cached words now and then: clients choose how long they are."""
        self._characters += characters
        if self._characters > _MAX_CACHED_CHARACTERS:
            self._characters = characters
            for embedder in self._embedders:
                embedder.free()

    def _predict(self, name: str, requests: Sequence[schemas.TaskRequest]) -> list[Answer]:
        trained = self.tasks[name]
        parsed: list[list[Any] | Answer] = []
        for request in requests:
            try:
                parsed.append(self._parse(trained, request))
            except InputError as error:
                parsed.append(refuse(error))
        valid = [items for items in parsed if not isinstance(items, Answer)]
        outcomes = iter(trained.outcomes(chain.from_iterable(valid)))

        def predictions(items: list[Any]) -> Answer:
            results = [trained.as_json(next(outcomes)) for _ in items]
            return as_json({"task": name, "predictions": results})

        return [items if isinstance(items, Answer) else predictions(items) for items in parsed]

    def _parse(self, trained: TrainedTask, request: schemas.TaskRequest) -> list[Any]:
        """Return an example or an error for each input; raise if they are too long together."""
        names = trained.task.inputs
        items = []
        for item in request.inputs:
            try:
                if isinstance(item, str) and len(names) > 1 and "\t" not in item:
                    raise InputError(f"expected the keys {' and '.join(names)}, got a text")
                items.append(trained.parse(item))
            except InputError as error:
                items.append(error)
        examples = [item for item in items if not isinstance(item, InputError)]
        texts = (text for example in examples for text in trained.task.texts(example))
        self._limits.check_tokens([len(text) for text in texts])
        return items


def _load_task(folder: str, embedders: Sequence[Embedder], setup: Setup) -> TrainedTask:
    """Load a task; it shares its biLM with the models if it was trained with one of them."""
    wanted = read_bilm_hash(folder)
    shared = [e for e in embedders if wanted is not None and e.weights_hash == wanted]
    return load_task(folder, device=setup.device, bilm=shared[0] if shared else None)
