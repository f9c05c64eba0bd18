"""The API. Oracles: embedder, analysis and tasks outside the server; Eq. (1) in numpy."""

import asyncio
import io
import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import elmore
from elmore.analysis.neighbors import nearest_neighbors, parse_query
from elmore.embedder import Embedder
from elmore.server.batching import BusyError, Queue
from elmore.server.limits import BodyLimit
from elmore.server.setup import Limits
from elmore.server.worker import WorkerDiedError
from tests.server.conftest import HOSTILE, LIMITS, InProcess

TEXTS = ["He sat by the bank.", "", "Banks fail !"]
# Rounding depends on the words that are encoded together and on the rows of a product.
close = {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.parametrize("layers", ["all", "top", "average", "sum", 0, 2])
def test_json_has_the_vectors_of_embed(client: TestClient, elmo: Embedder, layers) -> None:
    body = client.post("/v1/embed", json={"texts": TEXTS, "layers": layers}).json()
    expected = elmo.embed(TEXTS, layers=layers)
    assert body["model"] == "tiny"
    assert body["tokens"] == [elmore.tokenize(text) for text in TEXTS]
    for vectors, array in zip(body["vectors"], expected, strict=True):
        np.testing.assert_allclose(
            np.array(vectors, np.float32).reshape(array.shape), array, **close
        )


def test_all_formats_have_equal_bits(client: TestClient, tmp_path: Path) -> None:
    request = {"tokens": [["He", "sat"], [], ["Banks", "fail", "."]]}
    bodies = {
        name: client.post("/v1/embed", json={**request, "format": name})
        for name in ("json", "npy", "arrow")
    }
    from_json = [np.array(v, np.float32) for v in bodies["json"].json()["vectors"]]
    joined = np.load(io.BytesIO(bodies["npy"].content), allow_pickle=False)
    assert bodies["npy"].headers["X-Lengths"] == "2,0,3"
    (tmp_path / "x.arrow").write_bytes(bodies["arrow"].content)
    rows = list(elmore.read_vectors(tmp_path / "x.arrow"))
    assert [row.tokens for row in rows] == request["tokens"]
    for i, (start, end) in enumerate([(0, 2), (2, 2), (2, 5)]):
        assert np.array_equal(joined[:, start:end], rows[i].vectors)
        assert np.array_equal(from_json[i].reshape(rows[i].vectors.shape), rows[i].vectors)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_pooled_vectors_are_those_of_sentence_vectors(
    client: TestClient, elmo: Embedder, pooling: str
) -> None:
    request = {"texts": TEXTS, "layers": "top", "pooling": pooling}
    expected = elmo.sentence_vectors(TEXTS, layers="top", pool=pooling)
    in_json = client.post("/v1/embed", json=request).json()["vectors"]
    npy = client.post("/v1/embed", json={**request, "format": "npy"})
    arrow = client.post("/v1/embed", json={**request, "format": "arrow"})
    table = pa.ipc.open_file(arrow.content).read_all()
    np.testing.assert_allclose(in_json, expected, **close)
    np.testing.assert_allclose(np.load(io.BytesIO(npy.content)), expected, **close)
    np.testing.assert_allclose(table["vectors"].to_pylist(), expected, **close)


def test_pooling_of_all_layers_has_one_vector_per_layer(client: TestClient, elmo: Embedder) -> None:
    request = {"texts": ["He sat by the bank."], "pooling": "mean"}
    [vectors] = client.post("/v1/embed", json=request).json()["vectors"]
    np.testing.assert_allclose(vectors, elmo.embed(request["texts"])[0].mean(axis=1), **close)


def test_similarity_is_the_cosine_of_each_layer(client: TestClient, elmo: Embedder) -> None:
    first, second = ["the", "bank", "paid"], ["He", "sat", "by", "the", "bank"]
    request = {
        "first": {"tokens": first, "position": 1},
        "second": {"text": "He sat by the [bank]"},
        "matrix": True,
    }
    body = client.post("/v1/similarity", json=request).json()
    a, b = (v.astype(np.float64) for v in elmo.embed([first, second]))
    for layer in range(3):
        expected = [
            [x @ y / np.linalg.norm(x) / np.linalg.norm(y) for y in b[layer]] for x in a[layer]
        ]
        np.testing.assert_allclose(body["matrix"][layer], expected, atol=1e-5)
        assert body["layers"][layer] == pytest.approx(expected[1][4], abs=1e-5)
    assert body["second"] == {"word": "bank", "position": 4, "tokens": second}


@pytest.mark.parametrize("layer", ["top", "average", 0])
def test_neighbors_are_those_of_the_analysis(
    client: TestClient, elmo: Embedder, folder: Path, layer
) -> None:
    query = "She wrote a [play] about a bank ."
    request = {"word": {"text": query}, "k": 4, "layer": layer}
    body = client.post("/v1/neighbors", json=request).json()
    corpus = (folder / "corpus.txt").read_text().splitlines()
    [expected] = nearest_neighbors(elmo, [parse_query(query)], corpus, k=4, layer=layer)
    similarities = [n["similarity"] for n in body["neighbors"]]
    np.testing.assert_allclose(similarities, [n.similarity for n in expected], atol=1e-5)
    if layer != 0:  # where equal words are equally similar
        found = [(n["line"], n["position"]) for n in body["neighbors"]]
        assert found == [(n.line, n.occurrence.position) for n in expected]


def test_mixed_neighbors_follow_equation_1(
    client: TestClient, elmo: Embedder, folder: Path
) -> None:
    tokens, w, gamma = ["a", "play"], [0.5, -1.0, 2.0], 3.0
    request = {
        "word": {"tokens": tokens, "position": 1},
        "k": 50,
        "mix": {"weights": w, "gamma": gamma},
    }
    body = client.post("/v1/neighbors", json=request).json()
    s = np.exp(w) / np.exp(w).sum()

    def mixed(vectors: np.ndarray) -> np.ndarray:
        return gamma * np.tensordot(s, vectors.astype(np.float64), 1)

    query = mixed(elmo.embed([tokens])[0])[1]
    corpus = (folder / "corpus.txt").read_text().splitlines()
    sentences = [mixed(v) for v in elmo.embed(corpus)]
    assert body["length"] == pytest.approx(np.linalg.norm(query), rel=1e-5)
    assert len(body["neighbors"]) == sum(map(len, sentences))
    for n in body["neighbors"]:
        v = sentences[n["line"]][n["position"]]
        cosine = v @ query / np.linalg.norm(v) / np.linalg.norm(query)
        assert n["similarity"] == pytest.approx(cosine, abs=1e-5)


def test_map_has_the_query_and_every_occurrence(client: TestClient) -> None:
    request = {"word": {"text": "The [Play] ended"}}
    points = client.post("/v1/map", json=request).json()["points"]
    assert [(p["line"], p["word"]) for p in points] == [(None, "Play"), (2, "play"), (3, "play")]
    assert all(p["cluster"] < len(points) for p in points)


def test_inside_shows_bytes_filters_and_layers(client: TestClient, elmo: Embedder) -> None:
    tokens = ["le", "caf\u00e9"]
    request = {"word": {"tokens": tokens, "position": 1}}
    body = client.post("/v1/inside", json=request).json()
    assert [b["value"] for b in body["bytes"]] == ["BOW", "63", "61", "66", "c3", "a9", "EOW"]
    assert [b["character"] for b in body["bytes"]] == [None, *"caf\u00e9", None, None]
    expected = elmo.embed([tokens])[0][:, 1]
    np.testing.assert_allclose([layer["values"] for layer in body["layers"]], expected, **close)
    filters = [(group["width"], group["filters"]) for group in body["filters"]]
    assert filters == [tuple(f) for f in elmo.config.filters]


def test_tasks_predict_what_the_trained_task_does(client: TestClient, folder: Path) -> None:
    texts = ["Ada Lovelace lived in London.", "New York"]
    expected = elmore.tasks.load(folder / "ner", device="cpu")(texts)
    body = client.post("/v1/tasks/ner", json={"inputs": [*texts, "", {"text": texts[0]}]}).json()
    assert [p.get("tags") for p in body["predictions"]] == [
        *(e["tags"] for e in expected),
        None,
        expected[0]["tags"],
    ]
    assert body["predictions"][2] == {"error": "expected text, got an empty line"}
    wrong = client.post("/v1/tasks/ner", json={"inputs": [{"premise": "A man sings."}]}).json()
    assert wrong["predictions"] == [{"error": "expected the key text, got premise"}]


def test_a_task_shares_the_model_that_it_was_trained_with(worker: InProcess) -> None:
    layers = worker.backend.tasks["ner"].encode.layers
    assert layers is not None
    assert layers.embedder is worker.backend.models["tiny"].embedder
    assert worker.backend.tasks["plain"].encode.layers is None


def test_models_are_listed(client: TestClient) -> None:
    body = client.get("/v1/models").json()
    assert [model["name"] for model in body["models"]] == ["tiny"]
    assert [(t["name"], t["elmo"]) for t in body["tasks"]] == [("ner", True), ("plain", False)]
    assert body["limits"] == asdict(LIMITS)
    assert isinstance(body["limits"]["max_tokens"], int)


@pytest.mark.parametrize(
    ("path", "request_body", "status", "message"),
    [
        ("embed", {}, 422, "expected either texts or tokens"),
        ("embed", {"texts": ["a"], "tokens": [["a"]]}, 422, "expected either texts or tokens"),
        ("embed", {"texts": "a"}, 422, "texts: Input should be a valid list"),
        ("embed", {"texts": []}, 422, "texts: List should have at least 1 item"),
        ("embed", {"texts": [7]}, 422, "texts.0: Input should be a valid string"),
        ("embed", {"tokens": [["a", 7, 8], 9]}, 422, "tokens.0.1: Input should be a valid string"),
        ("embed", {"texts": ["a"], "layer": 1}, 422, "layer: Extra inputs are not permitted"),
        ("embed", {"texts": ["a"], "layers": 3}, 422, "layers must be all, top, average"),
        ("embed", {"texts": ["a"], "layers": True}, 422, "layers: expected all, top, average, sum"),
        (
            "neighbors",
            {"word": {"text": "[a]"}, "layer": "all"},
            422,
            "layer: expected top, average",
        ),
        ("embed", {"texts": ["a"], "model": "../x"}, 404, "no model '../x'; loaded: tiny"),
        ("embed", {"texts": ["a"] * 9}, 422, "expected up to 8 sentences, got 9"),
        ("embed", {"texts": ["a" * 2001]}, 422, "expected up to 2,000 characters in all"),
        ("embed", {"texts": ["a " * 101]}, 422, "sentences of up to 100 tokens, got one of 101"),
        ("embed", {"tokens": [["a"] * 90] * 3}, 422, "up to 200 tokens in all, got 270"),
        ("similarity", {"first": {"text": "bank"}, "second": {"text": "a [b]"}}, 422, "brackets"),
        ("neighbors", {"word": {"tokens": ["a"], "position": 1}}, 422, "a position below 1"),
        ("neighbors", {"word": {"text": "[a]"}, "mix": {"weights": [1]}}, 422, "3 weights"),
        ("neighbors", {"word": {"text": "[a]"}, "k": 0}, 422, "k: Input should be greater"),
        ("map", {"word": {"text": "a [b c]"}}, 422, "one word in the brackets"),
        ("inside", {"word": {}}, 422, "word: expected either text or tokens"),
        ("tasks/qa", {"inputs": ["a"]}, 404, "no task 'qa'; loaded: ner, plain"),
        ("tasks/..%2Fner", {"inputs": ["a"]}, 404, ""),
        ("tasks/ner", {"inputs": ["a " * 101]}, 422, "sentences of up to 100 tokens"),
        ("tasks/ner", {"inputs": ["a", 5]}, 422, "inputs.1: expected Unicode text, or an object"),
        ("tasks/ner", {"inputs": [["a", "b"]]}, 422, "inputs.0: expected Unicode text, or an"),
    ],
)
def test_invalid_requests_are_explained(
    client: TestClient, path: str, request_body: dict, status: int, message: str
) -> None:
    response = client.post(f"/v1/{path}", json=request_body)
    assert response.status_code == status
    assert message in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 422, "expected a JSON object"),
        (b"{", 422, "the body is not valid JSON: Expecting property name"),
        (b"[]", 422, "expected a JSON object"),
        (b"\xff", 400, ""),
        (b"null", 422, "expected a JSON object"),
        (b'{"texts": ["\\ud800"]}', 422, "texts.0: expected Unicode text, got a lone surrogate"),
        (b'{"texts": [NaN]}', 422, "texts.0: Input should be a valid string"),
    ],
)
def test_bodies_that_are_no_requests_are_refused(
    client: TestClient, body: bytes, status: int, message: str
) -> None:
    response = client.post("/v1/embed", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == status
    assert message in response.json()["detail"]


def test_a_body_without_the_content_type_of_json_is_explained(client: TestClient) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # what curl -d sends
    response = client.post("/v1/embed", content=b'{"texts": ["a"]}', headers=form)
    assert response.status_code == 422
    assert "Content-Type: application/json" in response.json()["detail"]


@pytest.mark.parametrize(
    ("path", "field"), [("embed", "texts"), ("embed", "tokens"), ("tokenize", "texts")]
)
def test_only_the_first_invalid_item_of_a_list_is_described(
    client: TestClient, path: str, field: str
) -> None:
    detail = client.post(f"/v1/{path}", json={field: [7, 8, 9]}).json()["detail"]
    assert f"{field}.0" in detail
    assert f"{field}.1" not in detail


def test_large_bodies_are_refused_whether_announced_or_not(client: TestClient) -> None:
    large = json.dumps({"texts": ["a" * 20_000]}).encode()
    announced = client.post("/v1/embed", content=large)
    chunked = client.post("/v1/embed", content=iter([large[:15_000], large[15_000:]]))
    assert announced.status_code == chunked.status_code == 413
    assert announced.json() == {"detail": "expected a body of up to 20,000 bytes"}


@pytest.mark.parametrize("text", HOSTILE, ids=repr)
def test_hostile_texts_are_embedded_or_explained(
    client: TestClient, elmo: Embedder, text: str
) -> None:
    response = client.post("/v1/embed", json={"texts": [text], "layers": "top"})
    assert response.status_code == 200
    [vectors] = response.json()["vectors"]
    [expected] = elmo.embed([text], layers="top")
    np.testing.assert_allclose(np.reshape(vectors, expected.shape), expected, **close)
    for path, body in {
        "tokenize": {"texts": [text]},
        "similarity": {"first": {"text": text}, "second": {"tokens": [text], "position": 0}},
        "neighbors": {"word": {"tokens": [text], "position": 0}},
        "map": {"word": {"tokens": [text, text], "position": 1}},
        "inside": {"word": {"tokens": [text], "position": 0}},
        "tasks/ner": {"inputs": [text]},
    }.items():
        response = client.post(f"/v1/{path}", json=body)
        assert response.status_code in (200, 422), (path, response.text)


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(tokens=st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_any_tokens_can_be_embedded(client: TestClient, tokens: list[str]) -> None:
    response = client.post("/v1/embed", json={"tokens": [tokens], "layers": 1})
    assert np.array(response.json()["vectors"]).shape[:2] == (1, len(tokens))


TOKEN = "a-token-of-sixteen-characters-or-more"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN}", 200),
    ],
)
def test_the_api_needs_its_token(
    new_client: Callable[..., TestClient], header: str | None, status: int
) -> None:
    client = new_client(token=TOKEN)
    headers = {} if header is None else {"Authorization": header}
    for path in ("/v1/models", "/metrics", "/openapi.json"):
        assert client.get(path, headers=headers).status_code == status
    body = {"texts": ["a"]}
    assert client.post("/v1/embed", json=body, headers=headers).status_code == status
    for path in ("/", "/healthz", "/readyz"):
        assert client.get(path).status_code == 200


def test_unknown_hosts_are_refused(new_client: Callable[..., TestClient]) -> None:
    client = new_client(hosts=["localhost"])
    assert client.get("/healthz", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/healthz", headers={"Host": "localhost:8000"}).status_code == 200


def test_every_response_has_security_headers(client: TestClient) -> None:
    for response in (client.get("/"), client.get("/nothing"), client.post("/v1/embed", json={})):
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/../app.py", "/page/app.js", "/etc/passwd", "/%2e%2e/run.py"])
def test_no_path_reaches_the_file_system(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_metrics_count_requests_by_route(new_client: Callable[..., TestClient]) -> None:
    client = new_client()
    client.post("/v1/embed", json={"texts": ["He sat."]})
    client.post("/v1/embed", json={})
    client.get("/nothing/at/all")
    lines = client.get("/metrics").text.splitlines()
    assert 'elmore_requests_total{route="/v1/embed",status="200"} 1.0' in lines
    assert 'elmore_requests_total{route="/v1/embed",status="422"} 1.0' in lines
    assert 'elmore_requests_total{route="other",status="404"} 1.0' in lines
    assert "elmore_queue_words 0.0" in lines


def test_metrics_count_what_is_refused_before_the_routes(
    new_client: Callable[..., TestClient],
) -> None:
    client = new_client(token=TOKEN, hosts=["testserver"])
    allowed = {"Authorization": f"Bearer {TOKEN}"}
    client.get("/v1/models")
    client.get("/healthz", headers={"Host": "evil.example"})
    client.post("/v1/embed", content=b"x" * 20_001, headers=allowed)
    lines = client.get("/metrics", headers=allowed).text.splitlines()
    for status in (400, 401, 413):
        assert f'elmore_requests_total{{route="other",status="{status}"}} 1.0' in lines


def test_the_size_of_a_response_is_limited(
    client: TestClient, worker: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the size of the response without the limit."""
    request = {"tokens": [["a"] * 90] * 2}
    size = len(client.post("/v1/embed", json=request).content)
    model = worker.backend.models["tiny"]
    monkeypatch.setattr(model, "_limits", replace(LIMITS, max_response=size // 2))
    response = client.post("/v1/embed", json=request)
    assert response.status_code == 422
    assert "MB. Send less text, or ask for one layer, pooling or the format npy" in response.text
    for smaller in ({"format": "npy"}, {"layers": "top"}, {"pooling": "max"}):
        assert client.post("/v1/embed", json={**request, **smaller}).status_code == 200
    monkeypatch.setattr(model, "_limits", replace(LIMITS, max_response=10_000))
    words = {"tokens": ["a"] * 90, "position": 0}
    for matrix, status in ((True, 422), (False, 200)):
        body = {"first": words, "second": words, "matrix": matrix}
        assert client.post("/v1/similarity", json=body).status_code == status


def test_words_of_clients_are_not_cached_for_good(
    client: TestClient, worker: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmore.server.backend._MAX_CACHED_CHARACTERS", 2000)
    cache = worker.backend.models["tiny"].embedder._runner.words
    for letter in "abcdef":
        assert client.post("/v1/embed", json={"texts": [letter * 900]}).status_code == 200
        assert sum(map(len, cache._rows)) < 3500


def test_health_checks_are_plain_text_as_documented(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path in ("/healthz", "/readyz", "/metrics"):
        response = client.get(path)
        assert response.status_code == 200
        assert response.headers["Content-Type"].startswith("text/plain")
        assert "text/plain" in paths[path]["get"]["responses"]["200"]["content"]


def test_requests_have_examples_that_work(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    used = 0
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if "requestBody" not in operation:
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            name = schema["$ref"].rpartition("/")[2]
            for example in document["components"]["schemas"][name]["examples"]:
                response = client.post(path.replace("{name}", "ner"), json=example)
                assert response.status_code == 200, (path, example, response.text)
                used += 1
    assert used >= 10


@pytest.mark.parametrize("name", Limits.__slots__)
def test_limits_must_be_positive(name: str) -> None:
    with pytest.raises(elmore.InputError, match=f"{name} must be positive, got 0"):
        Limits(**{name: 0})


def test_neighbors_are_refused_while_the_corpus_is_embedded(
    client: TestClient, worker: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.backend.models["tiny"], "_corpus", Future())
    response = client.post("/v1/neighbors", json={"word": {"text": "a [play]"}})
    assert (response.status_code, response.headers["Retry-After"]) == (429, "2")
    assert client.post("/v1/embed", json={"texts": ["a play"]}).status_code == 200


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (BusyError(3), 429, {"Retry-After": "3"}),
        (TimeoutError(), 504, {}),
        (WorkerDiedError(), 503, {}),
    ],
    ids=["busy", "slow", "died"],
)
def test_failures_of_the_queue_have_statuses_of_their_own(
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    headers: dict[str, str],
) -> None:
    async def submit(*_: object) -> None:
        raise error

    monkeypatch.setattr(Queue, "submit", submit)
    response = client.post("/v1/embed", json={"texts": ["a"]})
    assert response.status_code == status
    assert response.json()["detail"]
    assert headers.items() <= {k.title(): v for k, v in response.headers.items()}.items()


def test_a_body_that_does_not_arrive_is_refused_in_time() -> None:
    sent: list[dict] = []

    async def receive() -> dict:
        await asyncio.sleep(60)
        raise AssertionError

    async def send(message: dict) -> None:
        sent.append(message)

    async def app(*_: object) -> None:
        raise AssertionError

    scope = {"type": "http", "method": "POST", "path": "/v1/embed", "headers": []}
    middleware = BodyLimit(app, Limits(time_limit=0.05))
    asyncio.run(asyncio.wait_for(middleware(scope, receive, send), 10))
    assert sent[0]["status"] == 408
