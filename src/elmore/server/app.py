"""The routes: check a request, queue it for a worker, return its answer."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

import elmore
from elmore.errors import InputError
from elmore.server import schemas
from elmore.server.batching import BusyError, Queue
from elmore.server.limits import BodyLimit
from elmore.server.messages import ARROW, NPY
from elmore.server.metrics import Measure, Metrics
from elmore.server.security import Security
from elmore.server.setup import Limits
from elmore.server.worker import WorkerDiedError

_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": description}
    for status, description in {
        400: "The body is not UTF-8, or the Host header is not one of this server",
        401: "The token is missing or wrong",
        404: "There is no such model or task",
        408: "The body did not arrive in time",
        413: "The body is too large",
        422: "The request is invalid or exceeds a limit",
        429: "Too many requests or connections; try again after Retry-After seconds",
        500: "The server failed to answer this request",
        503: "The worker ended while it computed this request",
        504: "The computation took too long",
    }.items()
}
_VECTORS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            ARROW: {"schema": {"type": "string", "format": "binary"}},
            NPY: {"schema": {"type": "string", "format": "binary"}},
        },
        "headers": {
            "X-Lengths": {
                "description": "With npy and without pooling: the tokens of each sentence",
                "schema": {"type": "string"},
            }
        },
    }
}


def create_app(
    queue_of: Callable[[Metrics], Queue],
    loaded: dict[str, Any],
    limits: Limits,
    *,
    token: str | None = None,
    hosts: list[str] | None = None,
) -> FastAPI:
    """Return the app.

    Args:
        queue_of: Returns the queue of the app, which reports to the metrics of the app.
        loaded: What the workers have loaded: `Backend.describe`.
        limits: Limits of a request.
        token: The bearer token of the API, if it has one.
        hosts: Accepted values of the Host header; by default all.
    """
    metrics = Metrics()
    queue = queue_of(metrics)
    models = [model["name"] for model in loaded["models"]]
    tasks = [task["name"] for task in loaded["tasks"]]

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await queue.start()
        yield
        await queue.stop()

    app = FastAPI(
        title="elmore",
        version=elmore.__version__,
        description="ELMo: contextual word vectors, and the tasks of Peters et al. (2018).",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        responses=_PROBLEMS,
    )

    async def answer(kind: str, name: str, request: Any) -> Response:
        """Check the size of a request and wait for its answer."""
        limits.check_sentences(len(request.sentences()), request.characters())
        result = await queue.submit(kind, name, request, request.estimate_words())
        return Response(result.body, result.status, dict(result.headers), result.media_type)

    def find_model(name: str | None) -> str:
        if name is None:
            return models[0]
        if name not in models:
            raise HTTPException(404, f"no model {name[:40]!r}; loaded: {', '.join(models)}")
        return name

    @app.post("/v1/embed", response_model=schemas.EmbedResponse, responses=_VECTORS)
    async def embed(request: schemas.EmbedRequest) -> Response:
        """Return the vectors of sentences."""
        return await answer("model", find_model(request.model), request)

    @app.post("/v1/tokenize", response_model=schemas.TokenizeResponse)
    async def tokenize(request: schemas.TokenizeRequest) -> Response:
        """Return the tokens of sentences."""
        return await answer("model", find_model(request.model), request)

    @app.post("/v1/similarity", response_model=schemas.SimilarityResponse)
    async def similarity(request: schemas.SimilarityRequest) -> Response:
        """Compare two words in two sentences, layer by layer."""
        return await answer("model", find_model(request.model), request)

    @app.post("/v1/neighbors", response_model=schemas.NeighborsResponse)
    async def neighbors(request: schemas.NeighborsRequest) -> Response:
        """Return the words of the corpus that are most similar to a word in context."""
        return await answer("model", find_model(request.model), request)

    @app.post("/v1/map", response_model=schemas.MapResponse)
    async def occurrence_map(request: schemas.MapRequest) -> Response:
        """Return the occurrences of a word in the corpus, in two dimensions and in clusters."""
        return await answer("model", find_model(request.model), request)

    @app.post("/v1/inside", response_model=schemas.InsideResponse)
    async def inside(request: schemas.InsideRequest) -> Response:
        """Follow a word through the model: bytes, character filters, layers."""
        return await answer("model", find_model(request.model), request)

    @app.post("/v1/tasks/{name:path}", response_model=schemas.TaskResponse)
    async def predict(name: str, request: schemas.TaskRequest) -> Response:
        """Return the predictions of a trained task."""
        if name not in tasks:
            raise HTTPException(404, f"no task {name[:40]!r}; loaded: {', '.join(tasks) or 'none'}")
        return await answer("task", name, request)

    @app.get("/v1/models")
    async def describe() -> schemas.ModelsResponse:
        """Return the models, the tasks and the limits."""
        return schemas.ModelsResponse(version=elmore.__version__, limits=asdict(limits), **loaded)

    @app.get("/healthz", responses={200: {"content": {"text/plain": {}}}})
    async def healthz() -> Response:
        """Return 200: the server runs."""
        return Response("ok\n", media_type="text/plain")

    plain: dict[str, Any] = {"content": {"text/plain": {}}}

    @app.get("/readyz", responses={200: plain, 503: {"description": "No worker runs", **plain}})
    async def readyz() -> Response:
        """Return 200 if a worker can answer requests, else 503."""
        if queue.ready:
            return Response("ok\n", media_type="text/plain")
        return Response("no worker is running\n", 503, media_type="text/plain")

    @app.get("/metrics", responses={200: {"content": {"text/plain": {}}}})
    async def get_metrics() -> Response:
        """Return metrics for Prometheus."""
        return Response(metrics.text(), media_type=metrics.content_type)

    _add_page(app)
    _add_error_handlers(app)

    # The last one is the outermost: it counts what the others refuse.
    app.add_middleware(BodyLimit, limits=limits)
    if hosts:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    app.add_middleware(Security, token=token)
    app.add_middleware(Measure, metrics=metrics)
    return app


def _add_page(app: FastAPI) -> None:
    """Add a route for each file of the page: no path of a request reaches the file system."""
    for file in files("elmore.server").joinpath("page").iterdir():
        if (suffix := file.name.rpartition(".")[2]) not in _MEDIA_TYPES:
            continue
        body, media_type = file.read_bytes(), _MEDIA_TYPES[suffix]

        async def send(body: bytes = body, media_type: str = media_type) -> Response:
            return Response(body, media_type=media_type, headers={"Cache-Control": "no-cache"})

        path = "/" if file.name == "index.html" else f"/{file.name}"
        app.add_api_route(path, send, methods=["GET"], include_in_schema=False)


def _add_error_handlers(app: FastAPI) -> None:
    def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse({"detail": detail}, status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # Without the input, which may be large, or text that cannot be encoded.
        return problem(422, "; ".join(map(_describe_error, error.errors()[:5])))

    @app.exception_handler(InputError)
    async def rejected(_: Request, error: InputError) -> JSONResponse:
        return problem(422, str(error))

    @app.exception_handler(BusyError)
    async def busy(_: Request, error: BusyError) -> JSONResponse:
        seconds = str(error.args[0])
        return problem(429, f"busy; try again in {seconds} s", {"Retry-After": seconds})

    @app.exception_handler(TimeoutError)
    async def late(_: Request, __: TimeoutError) -> JSONResponse:
        return problem(504, "the computation took too long; send less text at once")

    @app.exception_handler(WorkerDiedError)
    async def died(_: Request, __: WorkerDiedError) -> JSONResponse:
        return problem(503, "the worker ended while it computed this request")


def _describe_error(error: dict[str, Any]) -> str:
    if error["type"] == "json_invalid":  # its location is a position in the body
        return f"the body is not valid JSON: {error['ctx']['error']}"
    if error["loc"] == ("body",) and error["type"] in ("model_attributes_type", "missing"):
        return "expected a JSON object, with the header Content-Type: application/json"
    where = ".".join(str(part) for part in error["loc"] if part != "body")
    message = error["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
