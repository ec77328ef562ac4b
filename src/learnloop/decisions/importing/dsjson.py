"""The dsjson format: one JSON object a line, written by Azure Personalizer and read by Vowpal Wabbit.

Source: the format's description in the wiki of Vowpal Wabbit ("DSJSON"), its parser, and its samples. A line is a
choice with its joined reward (``c``, ``_label_cost``), one with a choice for each of several slots (``c._slots``,
``_outcomes``), or an observation that was not joined (``EventId`` with a reward, or an activation, and no ``c``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from learnloop.core.errors import FormatError
from learnloop.core.records import DEFAULT, MAX_REWARD, Json
from learnloop.decisions.importing.choices import (
    DROPPED,
    ORIGINAL,
    REWARD,
    SUM_TOLERANCE,
    Activated,
    LoggedChoice,
    Observation,
    name_actions,
)
from learnloop.traces.importing.reader import decode_json, parse_time

MAX_DEPTH = 24
_KNOWN = ("c", "_label_cost", "_outcomes", "EventId")
_PROBABILITY_TOLERANCE = 1e-4
_TEXT = "_text"
"""The one key with an underscore that holds features; all others are not seen by a model."""


class _Distribution(NamedTuple):
    mask: list[bool] | None
    probabilities: list[float] | None
    order: list[int]
    """Places in the list of actions, as they were ranked."""


class _Line(NamedTuple):
    fields: Mapping[str, Any]
    shared: dict[str, Any]
    """What all choices of the line have in common."""
    context: Json
    items: list[Mapping[str, Any]]
    """One an action, as they are written."""
    names: list[str]
    features: list[Json] | None


def read_line(raw: bytes) -> list[LoggedChoice | Observation | Activated]:
    """Returns what a line says: one choice, one for each slot, or an observation without its choice.

    Raises:
        FormatError: it is no such line, or says what cannot be; the message names field and value.
    """
    fields = decode_json(raw)
    if not isinstance(fields, dict):
        raise FormatError(f"a JSON {type(fields).__name__}, not an object")
    if not any(name in fields for name in _KNOWN):
        raise FormatError(f"the fields are {sorted(fields)[:10]}; a line of dsjson has 'c', or 'EventId' and a reward")
    if "c" not in fields:
        return _read_observations(fields)
    line = _read_line(fields)
    if "_slots" in _object(fields["c"], "c") or "_outcomes" in fields:
        return list(_slots(line))
    return [_choice(line)]


def _read_observations(fields: Mapping[str, Any]) -> list[LoggedChoice | Observation | Activated]:
    event_id = _event_id(fields)
    if event_id is None:
        raise FormatError("there is neither 'c' nor 'EventId': it cannot be told what this line is about")
    moment = _moment(fields)
    for name in ("RewardValue", "v"):
        if name in fields:
            return [Observation(event_id, _reward(fields[name], name), moment)]
    if fields.get("ActionTaken") is True:
        return [Activated(event_id, moment)]
    outcomes = [_object(each, "o") for each in _list(fields.get("o", []), "o")]
    values = [each["v"] for each in outcomes if isinstance(each.get("v"), int | float)]  # a truth value is refused
    found: list[LoggedChoice | Observation | Activated] = [
        Observation(event_id, _reward(each, "o.v"), moment) for each in values
    ]
    if _is_activated(fields):
        found.append(Activated(event_id, moment))
    if not found:
        raise FormatError(f"the line of {event_id!r} has no 'c', and neither a reward nor an activation")
    return found


def _read_line(fields: Mapping[str, Any]) -> _Line:
    inner = _object(fields["c"], "c")
    items = [_object(each, "c._multi") for each in _list(inner.get("_multi"), "c._multi")]
    features = [_features_of(each) for each in items]
    names = name_actions([(_name_of(item), seen) for item, seen in zip(items, features, strict=True)])
    is_activated, is_deferred = _deferral(fields)
    shared = {
        "event_id": _event_id(fields),
        "moment": _moment(fields),
        "model": _model(fields),
        "is_deferred": is_deferred,
        "is_activated": is_activated,
    }
    return _Line(fields, shared, _features_of(inner), items, names, features if any(features) else None)


def _choice(line: _Line) -> LoggedChoice:
    fields, number = line.fields, len(line.names)
    chosen = _chosen(fields, number)
    found = _distribution(fields.get("a"), fields.get("p"), number, "")
    propensity = _probability(fields.get("_label_probability"), "_label_probability", found, chosen)
    return LoggedChoice(
        **line.shared,
        context=line.context,
        actions=line.names,
        features=line.features,
        mask=found.mask,
        chosen=chosen,
        propensity=propensity,
        probabilities=found.probabilities,
        rewards=_rewards(fields, fields.get("o"), fields),
    )


def _slots(line: _Line) -> Iterator[LoggedChoice]:
    """Yields a choice for each slot: of all actions (CCB), or of those that name the slot (slates)."""
    inner = line.fields["c"]
    slots = [_object(each, "c._slots") for each in _list(inner.get("_slots", []), "c._slots")]
    outcomes = [_object(each, "_outcomes") for each in _list(line.fields.get("_outcomes"), "_outcomes")]
    if len(slots) != len(outcomes):
        raise FormatError(f"there are {len(slots)} slots and {len(outcomes)} outcomes; each slot has one outcome")
    is_slates = any("_slot_id" in item for item in line.items)
    seen: set[str] = set()
    for index, (slot, outcome) in enumerate(zip(slots, outcomes, strict=True)):
        name = _text(outcome.get("_id", slot.get("_id"))) or f"slot-{index + 1}"
        if name in seen:
            raise FormatError(f"two slots are called {name!r}")
        seen.add(name)
        offered = list(range(len(line.items)))
        if is_slates:
            offered = [at for at, item in enumerate(line.items) if item.get("_slot_id") == index]
        yield _slot_choice(line, name, _features_of(slot), outcome, offered, is_slates=is_slates)


def _slot_choice(
    line: _Line, name: str, slot: Json, outcome: Mapping[str, Any], offered: list[int], *, is_slates: bool
) -> LoggedChoice:
    found = _distribution(outcome.get("_a"), outcome.get("_p"), len(offered), "_outcomes.", first=0)
    if not found.order:
        raise FormatError(f"the outcome of slot {name!r} has no '_a': it does not say what was chosen")
    chosen = found.order[0]
    return LoggedChoice(
        **line.shared,
        context={**line.context, "slot": {**slot, "id": name}},  # as the decision service asks its policies
        actions=[line.names[at] for at in offered],
        features=None if line.features is None else [line.features[at] for at in offered],
        mask=found.mask,
        chosen=chosen,
        propensity=_probability(None, "_outcomes._p", found, chosen),
        probabilities=found.probabilities,
        rewards=_rewards(line.fields if is_slates else outcome, outcome.get("_o"), line.fields),
        slot=name,
    )


def _chosen(fields: Mapping[str, Any], number: int) -> int:
    action, index = fields.get("_label_Action"), fields.get("_labelIndex")
    if action is None and index is None:
        raise FormatError("neither _label_Action nor _labelIndex is given: it does not say what was chosen")
    for name, value, first in (("_label_Action", action, 1), ("_labelIndex", index, 0)):
        if value is not None and not (_is_integer(value) and first <= value < number + first):
            raise FormatError(f"{name} is {value!r}; with {number} actions allowed are {first} to {number + first - 1}")
    if action is not None and index is not None and action != index + 1:
        raise FormatError(f"_label_Action is {action} and _labelIndex {index}; the first is one more than the other")
    return int(action) - 1 if action is not None else int(index or 0)


def _distribution(ranked: Any, given: Any, number: int, prefix: str, *, first: int | None = None) -> _Distribution:
    """Returns the probabilities by place; ``first`` is the number of the first action: 0 or 1, None: either."""
    if ranked is None:
        order = list(range(number)) if given is not None else []
    else:
        listed = _list(ranked, f"{prefix}a")
        if not all(_is_integer(each) for each in listed):
            raise FormatError(f"{prefix}a is {listed[:10]}; it lists the numbers of actions")
        start = first if first is not None else (0 if 0 in listed else 1)
        order = [each - start for each in listed]
        if len(set(order)) != len(order) or not all(0 <= each < number for each in order):
            raise FormatError(f"{prefix}a is {listed[:10]}; with {number} actions each is listed at most once")
    if given is None:
        return _Distribution(_mask(order, number) if order else None, None, order)
    values = [_share(each, f"{prefix}p") for each in _list(given, f"{prefix}p")]
    if len(values) != len(order):
        raise FormatError(f"{prefix}p has {len(values)} probabilities for {len(order)} actions")
    if not all(0.0 <= each <= 1.0 for each in values) or abs(math.fsum(values) - 1.0) > SUM_TOLERANCE:
        raise FormatError(f"{prefix}p is {values[:10]}; probabilities lie from 0 to 1 and add up to 1")
    by_place = [0.0] * number
    for place, value in zip(order, values, strict=True):
        by_place[place] = value
    return _Distribution(_mask(order, number), by_place, order)


def _mask(order: Sequence[int], number: int) -> list[bool] | None:
    """Returns which actions were ranked, thus allowed; None: all."""
    if len(order) == number:
        return None
    ranked = set(order)
    return [place in ranked for place in range(number)]


def _probability(given: Any, name: str, found: _Distribution, chosen: int) -> float:
    listed = None if found.probabilities is None else found.probabilities[chosen]
    if given is None:
        if listed is None:
            raise FormatError("no probability of the chosen action is given")
        return listed
    value = _share(given, name)
    if listed is not None and abs(value - listed) > _PROBABILITY_TOLERANCE:
        raise FormatError(f"{name} is {value}, and p says {listed} for the same action")
    return value


def _share(given: Any, name: str) -> float:
    """Returns a probability; 1 for what lies just above it, since sums of float32 do."""
    value = _number(given, name)
    return 1.0 if 1.0 < value <= 1.0 + _PROBABILITY_TOLERANCE else value


def _rewards(labelled: Mapping[str, Any], outcomes: Any, fields: Mapping[str, Any]) -> dict[str, float]:
    """Returns the parts: -cost where it is given, as a default where the log says that nothing was observed."""
    found: dict[str, float] = {}
    observed = _observed_values(outcomes)
    cost = labelled.get("_label_cost")
    if cost is not None:
        found[DEFAULT if outcomes == [] else REWARD] = 0.0 - _reward(cost, "_label_cost")
    elif observed:
        found[REWARD] = observed[0]  # the earliest, as Personalizer aggregates unless told otherwise
    original = labelled.get("_original_label_cost")
    if original is not None and original != cost:
        found[ORIGINAL] = 0.0 - _reward(original, "_original_label_cost")
    dropped = fields.get("pdrop")
    if dropped is not None:
        value = _number(dropped, "pdrop")
        if not 0.0 <= value < 1.0:
            raise FormatError(f"pdrop is {value}; a line that was kept was dropped with a probability below 1")
        if value:
            found[DROPPED] = value
    return found


def _observed_values(outcomes: Any) -> list[float]:
    values = []
    for outcome in [] if outcomes is None else _list(outcomes, "o"):
        value = outcome.get("v") if isinstance(outcome, dict) else outcome
        if isinstance(value, int | float) and not isinstance(value, bool):
            values.append(_reward(value, "o.v"))
    return values


def _deferral(fields: Mapping[str, Any]) -> tuple[bool, bool]:
    """Returns whether the choice was used, and whether it is one that counts only if it was."""
    skipped = _flag(fields, "_skipLearn")
    return _is_activated(fields) and not skipped, skipped or _flag(fields, "DeferredAction")


def _is_activated(fields: Mapping[str, Any]) -> bool:
    outcomes = fields.get("o")
    listed = outcomes if isinstance(outcomes, list) else []
    return any(isinstance(each, dict) and each.get("ActionTaken") is True for each in listed)


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise FormatError(f"{name} is {value!r}; allowed are true and false")
    return bool(value)


def _model(fields: Mapping[str, Any]) -> str | None:
    state = fields.get("VWState")
    name = _text(state.get("m")) if isinstance(state, dict) else None
    return None if name in (None, "", "N/A") else name


def _name_of(item: Mapping[str, Any]) -> str | None:
    """Returns how the caller calls an action: ``_tag``, ``id``, or the ``id`` of a namespace."""
    inner = (each.get("id") for each in item.values() if isinstance(each, dict))
    for name in (item.get("_tag"), item.get("id"), *inner):
        if name is not None and not isinstance(name, dict | list):
            return _text(name)
    return None


def _features_of(value: Any, depth: int = 0) -> Any:
    """Returns what a model sees of features: all but keys that begin with an underscore, as in Vowpal Wabbit."""
    if depth > MAX_DEPTH:
        raise FormatError(f"features are nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        return {
            key: _features_of(each, depth + 1) for key, each in value.items() if not key.startswith("_") or key == _TEXT
        }
    return [_features_of(each, depth + 1) for each in value] if isinstance(value, list) else value


def _event_id(fields: Mapping[str, Any]) -> str | None:
    return _text(fields.get("EventId", fields.get("event_id")))


def _moment(fields: Mapping[str, Any]) -> datetime | None:
    given = fields.get("Timestamp", fields.get("EnqueuedTimeUtc"))
    if given is None:
        return None
    if not isinstance(given, str):
        raise FormatError(f"Timestamp is {given!r}; it is text, such as 2026-01-31T12:00:00Z")
    return parse_time(given)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, dict | list):
        raise FormatError(f"an id is a JSON {type(value).__name__}; it is text or a number")
    return str(value)


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{name} holds a {type(value).__name__} where an object is expected")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise FormatError(f"{name} is a {type(value).__name__} where a list is expected")
    return value


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"{name} is {value!r}; it is a number")
    try:
        return float(value)
    except OverflowError as error:
        raise FormatError(f"{name} is a number that is too large") from error


def _reward(value: Any, name: str) -> float:
    number = _number(value, name)
    if abs(number) > MAX_REWARD:
        raise FormatError(f"{name} is {number}; allowed is up to {MAX_REWARD:g}")
    return number


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
