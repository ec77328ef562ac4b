"""Whether a JSON value has a given shape: the part of JSON Schema that says what an answer must look like."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_JSON_TYPES = (dict, list, str, int, float, bool, type(None))
_MAX_DEPTH = 50


def unknown_keyword(schema: Any) -> str | None:
    """Returns a keyword of a schema that is not checked here, or not with that value; None: there is none."""
    if not isinstance(schema, Mapping):
        return None
    for keyword, value in schema.items():
        if keyword not in _KEYWORDS:
            return str(keyword)
        if not _KEYWORDS[keyword](value):
            return f"{keyword}: {value}"[:80]
    nested = [*schema.get("properties", {}).values(), schema.get("items")]
    return next((found for each in nested if (found := unknown_keyword(each)) is not None), None)


def find_shape_fault(value: Any, schema: Mapping[str, Any], path: str = "$", depth: int = 0) -> str | None:
    """Returns where a value differs from a schema; None: it does not."""
    if depth > _MAX_DEPTH:
        return f"{path} is nested too deeply"
    if "type" in schema and not any(_is_type(value, name) for name in _names(schema["type"])):
        return f"{path} is no {' or '.join(_names(schema['type']))}"
    if "enum" in schema and not any(same_json(value, each) for each in schema["enum"]):
        return f"{path} is none of the allowed values"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            return f"{path} is below {schema['minimum']}"
        if "maximum" in schema and value > schema["maximum"]:
            return f"{path} is above {schema['maximum']}"
    if isinstance(value, dict):
        return _object_fault(value, schema, path, depth)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        faults = (find_shape_fault(each, schema["items"], f"{path}[{i}]", depth + 1) for i, each in enumerate(value))
        return next((fault for fault in faults if fault is not None), None)
    return None


def same_json(first: Any, second: Any) -> bool:
    """Returns whether two JSON values are the same: 1 and 1.0 are, 1 and true are not.

    Only values of JSON's own types are ever the same, whatever an object says of itself.
    """
    try:
        return json_key(first) == json_key(second)
    except ValueError:
        return False


def json_key(value: Any, depth: int = 0) -> Hashable:
    """Returns what is equal for two JSON values just where ``same_json`` finds them the same; in linear time.

    Raises:
        ValueError: it is no JSON value, and so the same as none.
    """
    kind: Any = type(value)
    if depth > _MAX_DEPTH or kind not in _JSON_TYPES or (kind is float and math.isnan(value)):
        raise ValueError("it is no JSON value")
    if kind is dict:
        return "object", frozenset((key, json_key(each, depth + 1)) for key, each in value.items())
    if kind is list:
        return "array", tuple(json_key(each, depth + 1) for each in value)
    return "number" if kind in (int, float) else kind.__name__, value


def _object_fault(value: dict[str, Any], schema: Mapping[str, Any], path: str, depth: int) -> str | None:
    properties = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            return f"{path} has no {key!r}"
    for key, each in value.items():
        if key in properties:
            fault = find_shape_fault(each, properties[key], f"{path}.{key}", depth + 1)
            if fault is not None:
                return fault
        elif schema.get("additionalProperties", True) is False:
            return f"{path} has {key[:40]!r}, which is not allowed"
    return None


def _names(types: Any) -> list[str]:
    return [types] if isinstance(types, str) else list(types)


def _known_types(types: Any) -> bool:
    names = [types] if isinstance(types, str) else types
    return isinstance(names, list) and bool(names) and all(isinstance(each, str) and each in _TYPES for each in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_schemas(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, Mapping) for each in value.values())


def _is_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


_KEYWORDS: Mapping[str, Callable[[Any], bool]] = {
    "type": _known_types,
    "properties": _are_schemas,
    "required": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    "items": lambda value: isinstance(value, Mapping),
    "enum": lambda value: isinstance(value, list),
    "minimum": _is_number,
    "maximum": _is_number,
    "additionalProperties": lambda value: isinstance(value, bool),
    "title": lambda value: isinstance(value, str),
    "description": lambda value: isinstance(value, str),
    "$schema": lambda value: isinstance(value, str),
}
"""What can be checked, and whether a value of it has a meaning."""
