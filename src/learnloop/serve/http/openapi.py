"""The description of all routes: OpenAPI 3.1, from the routes and the types that they declare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Any, get_args

import msgspec
from fastapi.openapi.utils import get_openapi

from learnloop.serve.http.operations import Operation, Operations
from learnloop.serve.http.problems import PROBLEM_TYPE, ProblemBody, title_of
from learnloop.serve.http.site import Site

_REF = "#/components/schemas/{name}"
_FASTAPI_SCHEMAS = ("HTTPValidationError", "ValidationError")
_KEY = "key"
_WITHOUT_BODY = (204, 304)
_PROBLEMS = (400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 421, 422, 428, 429, 500, 501, 503, 507)
_PROBLEM_REF = "#/components/responses/Problem{status}"
_ETAGS = r'^(\*|(W/)?"[!#-~]*"( *, *(W/)?"[!#-~]*")*)$'

Document = dict[str, Any]


def describe(site: Site, groups: Sequence[Operations]) -> Document:
    """Returns the OpenAPI document of the routes of ``groups`` of an application."""
    operations = [operation for group in groups for operation in group.routes]
    document = get_openapi(
        title=site.about.title,
        version=site.about.version,
        summary=site.about.summary,
        description=site.about.description,
        routes=operations,
    )
    schemas, types = _components(operations)
    known = document.setdefault("components", {}).setdefault("schemas", {})
    for name in _FASTAPI_SCHEMAS:
        known.pop(name, None)
    known.update(schemas)
    document["components"]["responses"] = _problem_answers()
    document["components"]["securitySchemes"] = {_KEY: {"type": "http", "scheme": "bearer"}}
    for group in groups:
        for operation in group.routes:
            for method in operation.methods or ():
                described = document["paths"][operation.path_format][method.lower()]
                _complete(described, operation, types, error_media=group.error_media)
    return document


def _components(operations: Sequence[Operation]) -> tuple[Document, Document]:
    """Returns the schemas of all declared types, and how each type is referred to, by its ``repr``."""
    types = {repr(kind): kind for kind in _types(operations)}
    found, schemas = msgspec.json.schema_components(list(types.values()), ref_template=_REF)
    return schemas, dict(zip(types, found, strict=True))


def _types(operations: Sequence[Operation]) -> Iterator[Any]:
    yield ProblemBody
    for operation in operations:
        for kind in (operation.rules.request, operation.rules.response):
            yield from _members(kind)


def _members(kind: Any) -> tuple[Any, ...]:
    """Returns the types of which a declared one is any: msgspec describes no union of Structs that have no tag."""
    if kind is None:
        return ()
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _schema(kind: Any, types: Document) -> Document:
    """Returns the schema of a declared type, or one that allows everything where none is declared."""
    found: list[Document] = [types[repr(each)] for each in _members(kind)]
    return {"anyOf": found} if len(found) > 1 else found[0] if found else {}


def _complete(described: Document, operation: Operation, types: Document, *, error_media: Sequence[str]) -> None:
    """Fills in what FastAPI does not know of a route: its bodies, its errors and what its key must allow."""
    rules = operation.rules
    if rules.accepts:
        schema = _schema(rules.request, types)
        content = {media_type: {"schema": schema} for media_type in rules.accepts}
        described["requestBody"] = {"required": True, "content": content}
    answers = described["responses"]
    answers.pop("422", None)
    good = answers[str(operation.status_code)]
    if operation.status_code in _WITHOUT_BODY:
        good.pop("content", None)
    else:
        good["content"] = {rules.produces: {"schema": _schema(rules.response, types)}}
    _add_conditions(described, operation)
    for status in _statuses(operation):
        if error_media:
            own: Document = {media_type: {"schema": {}} for media_type in error_media}
            answers.setdefault(str(status), {"description": title_of(status), "content": own})
        else:
            answers.setdefault(str(status), {"$ref": _PROBLEM_REF.format(status=status)})
    described["responses"] = dict(sorted(answers.items()))
    if rules.scope is not None:
        described["security"] = [{_KEY: []}, {}]
        described["x-required-scope"] = str(rules.scope)


def _statuses(operation: Operation) -> Iterator[int]:
    """Yields the statuses of the errors that a route may have; its own ``responses`` come on top."""
    rules = operation.rules
    takes_body, varies = bool(rules.accepts), "{" in operation.path
    yield from (400, 415, 421, 500, 503)
    if rules.scope is not None:
        yield 401
    if rules.scope is not None or "GET" not in (operation.methods or ()):
        yield 403
    if takes_body or varies:
        yield 404
    if takes_body:
        yield from (408, 409, 413, 507)
    if takes_body or operation.dependant.query_params or operation.dependant.path_params:
        yield 422
    if rules.idempotent:
        yield from (409, 422)
    if rules.if_match != "no":
        yield 412
    if rules.if_match == "must":
        yield 428


def _add_conditions(described: Document, operation: Operation) -> None:
    """Tells of ``Idempotency-Key``, ``If-Match``, ``If-None-Match`` and ``ETag`` where a route heeds them."""
    rules = operation.rules
    headers = {"Idempotency-Key": rules.idempotent, "If-Match": rules.if_match != "no", "If-None-Match": rules.has_etag}
    for name in (name for name, is_heeded in headers.items() if is_heeded):
        is_key = name == "Idempotency-Key"
        pattern = r"^[!-~]{1,255}$" if is_key else _ETAGS
        parameter = {
            "name": name,
            "in": "header",
            "required": name == "If-Match" and rules.if_match == "must",
            "schema": {"type": "string", "pattern": pattern},
        }
        described.setdefault("parameters", []).append(parameter)
    if rules.has_etag:
        described["responses"][str(operation.status_code)]["headers"] = {"ETag": {"schema": {"type": "string"}}}
        if "GET" in (operation.methods or ()):
            described["responses"]["304"] = {"description": "It is what If-None-Match names."}


def _problem_answers() -> Document:
    """Returns the answers that all routes share, by the names under which they are referred to."""
    content = {PROBLEM_TYPE: {"schema": {"$ref": _REF.format(name=ProblemBody.__name__)}}}
    return {f"Problem{status}": {"description": title_of(status), "content": content} for status in _PROBLEMS}
