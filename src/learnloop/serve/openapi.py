"""The description of all routes: OpenAPI 3.1, from the routes and the types that they declare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from fastapi.openapi.utils import get_openapi

from learnloop import __version__
from learnloop.serve.operations import Operation, Operations
from learnloop.serve.problems import PROBLEM_TYPE, ProblemBody

_REF = "#/components/schemas/{name}"
_FASTAPI_SCHEMAS = ("HTTPValidationError", "ValidationError")
_KEY = "key"
_WITHOUT_BODY = (204, 304)

Document = dict[str, Any]


def describe(groups: Sequence[Operations]) -> Document:
    """Returns the OpenAPI document of the routes of ``groups``."""
    operations = [operation for group in groups for operation in group.routes]
    document = get_openapi(
        title="learnloop",
        version=__version__,
        summary="Self-hosted learning loop for AI agents.",
        description=(
            "Every error is a problem (RFC 9457). Once a key exists, each route but `/health` and `/livez` needs one: "
            "`Authorization: Bearer llk_...`."
        ),
        routes=operations,
    )
    schemas, types = _components(operations)
    known = document.setdefault("components", {}).setdefault("schemas", {})
    for name in _FASTAPI_SCHEMAS:
        known.pop(name, None)
    known.update(schemas)
    document["components"]["securitySchemes"] = {_KEY: {"type": "http", "scheme": "bearer"}}
    for operation in operations:
        for method in operation.methods or ():
            described = document["paths"][operation.path_format][method.lower()]
            _complete(described, operation, types, custom_errors=_has_own_errors(operation, groups))
    return document


def _components(operations: Sequence[Operation]) -> tuple[Document, Document]:
    """Returns the schemas of all declared types, and how each type is referred to, by its ``repr``."""
    types = {repr(kind): kind for kind in _types(operations)}
    found, schemas = msgspec.json.schema_components(list(types.values()), ref_template=_REF)
    return schemas, dict(zip(types, found, strict=True))


def _types(operations: Sequence[Operation]) -> Iterator[Any]:
    yield ProblemBody
    for operation in operations:
        yield from (kind for kind in (operation.rules.request, operation.rules.response) if kind is not None)


def _complete(described: Document, operation: Operation, types: Document, *, custom_errors: bool) -> None:
    """Fills in what FastAPI does not know of a route: its bodies, its errors and what its key must allow."""
    rules = operation.rules
    if rules.accepts:
        schema = {} if rules.request is None else types[repr(rules.request)]
        content = {media_type: {"schema": schema} for media_type in rules.accepts}
        described["requestBody"] = {"required": True, "content": content}
    answers = described["responses"]
    answers.pop("422", None)
    good = answers[str(operation.status_code)]
    if operation.status_code in _WITHOUT_BODY:
        good.pop("content", None)
    else:
        good["content"] = {rules.produces: {"schema": {} if rules.response is None else types[repr(rules.response)]}}
    if not custom_errors:
        problem = {PROBLEM_TYPE: {"schema": types[repr(ProblemBody)]}}
        answers["default"] = {"description": "An error.", "content": problem}
    if rules.scope is not None:
        described["security"] = [{_KEY: []}, {}]
        described["x-required-scope"] = rules.scope.value


def _has_own_errors(operation: Operation, groups: Sequence[Operations]) -> bool:
    return any(group.error_body is not None and operation in group.routes for group in groups)
