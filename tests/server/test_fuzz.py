"""Generated requests. Oracles: the OpenAPI document; no response is a server error."""

from collections.abc import Callable

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def test_generated_requests_are_answered_as_documented(
    new_client: Callable[..., TestClient],
) -> None:
    client = new_client()
    document = client.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    statuses: set[int] = set()

    def check(case: schemathesis.Case) -> None:
        request = case.as_transport_kwargs(base_url="http://testserver")
        request["content"] = request.pop("data", None)
        response = client.request(**{k: v for k, v in request.items() if k != "cookies"})
        statuses.add(response.status_code)
        case.validate_response(Response.from_any(response), checks=CHECKS)

    operations = [result.ok() for result in schema.get_all_operations()]
    posts = [operation for operation in operations if operation.method == "post"]
    assert len(posts) == 7
    for operation in posts:
        for mode in GenerationMode:
            run = settings(
                max_examples=10, deadline=None, database=None, suppress_health_check=HealthCheck
            )(given(case=operation.as_strategy(generation_mode=mode))(check))
            run()
    assert {200, 404, 422} <= statuses
