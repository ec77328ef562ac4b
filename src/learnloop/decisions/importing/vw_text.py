"""Vowpal Wabbit's text format for contextual bandits: ``action:cost:probability | features``.

Source: Vowpal Wabbit's wiki, "Input format" and "Contextual Bandit algorithms". ``cb``: a line is a choice among
numbered actions. ``cb_adf``: lines up to an empty one are a choice, one line an action, perhaps after a line
``shared |``; the line with a label is the action that was chosen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from learnloop.core.errors import FormatError
from learnloop.core.records import MAX_REWARD, Json
from learnloop.decisions.importing.choices import REWARD, LoggedChoice, name_actions
from learnloop.decisions.service.settings import MAX_ACTIONS

_SHARED = "shared"
_LABEL = re.compile(r"[0-9]+(:[^:\s]*){0,2}")
_OTHER_LABELS = ("ccb", "slates")
_MAX_FEATURES = 100_000


class Label(NamedTuple):
    """``action:cost:probability``; None: not given."""

    action: int
    cost: float | None
    probability: float | None


class VwExample(NamedTuple):
    """One line."""

    is_shared: bool
    labels: list[Label]
    tag: str | None
    features: Json


def read_example(text: str) -> VwExample:
    """Returns what a line says.

    Raises:
        FormatError: it is no line of ``cb`` or ``cb_adf``.
    """
    head, bar, body = text.partition("|")
    if not bar:
        raise FormatError("there is no '|' before the features")
    words = head.split()
    if words and words[0] in _OTHER_LABELS:
        raise FormatError(f"the label is of {words[0]!r}; of text, cb and cb_adf can be read (and dsjson with slots)")
    is_shared = bool(words) and words[0] == _SHARED
    words = words[1:] if is_shared else words
    labels, tag = [], None
    for index, word in enumerate(words):
        if _LABEL.fullmatch(word) and (":" in word or index < len(words) - 1 or head[-1:].isspace()):
            labels.append(_label(word))
        elif index == len(words) - 1:
            tag = word.removeprefix("'") or None
        else:
            raise FormatError(f"{word!r} is no label such as 2:-1.0:0.25, action:cost:probability")
    if is_shared and labels:
        raise FormatError("a shared line has a label; the action that was chosen has it")
    return VwExample(is_shared, labels, tag, _features(body))


def cb_choice(example: VwExample, number_of_actions: int) -> LoggedChoice:
    """Returns the choice of a line of ``cb``; actions are called by their numbers, from 1.

    Raises:
        FormatError: it does not say which action was chosen, with which probability.
    """
    if any(label.action < 1 for label in example.labels):
        raise FormatError("an action is 0; actions are counted from 1")
    chosen = _chosen([(label.action - 1, label) for label in example.labels])
    listed = {label.action for label in example.labels}
    numbers = sorted(listed) if len(listed) > 1 else range(1, number_of_actions + 1)
    names = [str(number) for number in numbers]
    place = names.index(str(chosen[0] + 1))
    return _logged(chosen[1], place, example.features, names, None)


def adf_choice(examples: Sequence[VwExample]) -> LoggedChoice:
    """Returns the choice of the lines up to an empty one.

    Raises:
        FormatError: not exactly one line has a label, or the line ``shared`` is not the first.
    """
    if any(example.is_shared for example in examples[1:]):
        raise FormatError("a line 'shared' is not the first before an empty line")
    shared = examples[0].features if examples[0].is_shared else {}
    actions = examples[1:] if examples[0].is_shared else examples
    features = [example.features for example in actions]
    names = name_actions([(example.tag, example.features) for example in actions])
    chosen = _chosen([(place, label) for place, example in enumerate(actions) for label in example.labels])
    return _logged(chosen[1], chosen[0], shared, names, features if any(features) else None)


def _chosen(labelled: Sequence[tuple[int, Label]]) -> tuple[int, Label]:
    found = [(place, label) for place, label in labelled if label.probability is not None]
    if len(found) != 1:
        raise FormatError(f"{len(found)} actions have a probability; the one that was chosen has it, and no other")
    return found[0]


def _logged(label: Label, place: int, context: Json, names: list[str], features: list[Json] | None) -> LoggedChoice:
    if label.cost is None or label.probability is None:
        raise FormatError(f"the label of action {names[place]!r} has no cost; action:cost:probability is needed")
    return LoggedChoice(
        event_id=None,
        moment=None,
        context=context,
        actions=names,
        features=features,
        mask=None,
        chosen=place,
        propensity=label.probability,
        probabilities=None,
        rewards={REWARD: 0.0 - label.cost},
    )


def _label(word: str) -> Label:
    action, *numbers = word.split(":")
    cost, probability = ([_number(each, word) if each else None for each in numbers] + [None, None])[:2]
    if len(action) > 6 or int(action) > MAX_ACTIONS:
        raise FormatError(f"the action of {word[:40]!r} is above {MAX_ACTIONS}")
    return Label(int(action), cost, probability)


def _features(body: str) -> dict[str, Any]:
    """Returns features by name; those of a namespace together below its name."""
    found: dict[str, Any] = {}
    count = 0
    for part in body.split("|"):
        words = part.split()
        space, weight = "", 1.0
        if words and not part[:1].isspace():
            space, _, given = words.pop(0).partition(":")
            weight = _number(given, part) if given else 1.0
        target = found
        if space:
            target = found.setdefault(space, {})
            if not isinstance(target, dict):
                raise FormatError(f"{space!r} is a feature and a namespace")
        for index, word in enumerate(words):
            name, _, given = word.partition(":")
            target[name or str(index)] = weight * (_number(given, word) if given else 1.0)
        count += len(words)
        if count > _MAX_FEATURES:
            raise FormatError(f"a line has more than {_MAX_FEATURES:,} features")
    return found


def _number(text: str, word: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise FormatError(f"{text[:40]!r} in {word[:80]!r} is not a number") from error
    if not math.isfinite(number) or abs(number) > MAX_REWARD:
        raise FormatError(f"{text[:40]!r} in {word[:80]!r} is not a finite number up to {MAX_REWARD:g}")
    return number
