"""What a step of a logged episode was chosen on, as numbers: the same for logs and for an agent that acts.

Nothing is fitted: how one step looks depends on no other step, so no outcome can reach an observation that came before
it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from learnloop.core.arrays import F32, I64
from learnloop.core.errors import ActionError, ContextError, UsageError, one_of
from learnloop.core.records import Json
from learnloop.core.spaces import Box, Dict, Discrete, ObservationSpace, Spaces, Text
from learnloop.nn.encoders.context_schema import MAX_FEATURES
from learnloop.nn.encoders.observation_encoder import ObservationEncoder
from learnloop.traces.datasets.logged_episodes import FAILED, SUCCEEDED, UNKNOWN
from learnloop.traces.json_values import sorted_text

FeatureKind = Literal["number", "text"]

GOAL_BUCKETS = 128
"""Numbers of a goal's text."""
TEXT_BUCKETS = 32
"""Numbers of a feature that is text."""

_NUMBER = Box(shape=(2,), low=(None, None), high=(None, None))
"""A feature that is a number: sign(v) log(1 + abs(v)), and whether it is there."""
_COUNT = Box(shape=(1,), low=(0.0,), high=(None,))
_DIGEST = Box(shape=(1,), low=(-1.0,), high=(1.0,))
_LARGEST = 1e300


class Seen(NamedTuple):
    """What several steps were chosen on, a list each."""

    goals: Sequence[str]
    num_steps: I64
    """Steps of the episode so far."""
    previous: I64
    """The step before: 0 for none, else 1 + its action."""
    outcomes: I64
    """What was known of how that came out."""
    contexts: Sequence[Json]

    def part(self, rows: slice) -> Seen:
        """Returns some of the steps."""
        goals, contexts = self.goals[rows], self.contexts[rows]
        return Seen(goals, self.num_steps[rows], self.previous[rows], self.outcomes[rows], contexts)


def feature_kinds(contexts: Iterable[Json]) -> dict[str, FeatureKind]:
    """Returns the features of ``contexts`` by name: numbers where no value is anything else, else text.

    Raises:
        ContextError: there are more than ``MAX_FEATURES``.
    """
    kinds: dict[str, FeatureKind] = {}
    for context in contexts:
        for name, value in context.items():
            if value is None:
                continue
            kind: FeatureKind = "number" if isinstance(value, bool | int | float) else "text"
            if kinds.setdefault(name, kind) != kind:
                kinds[name] = "text"
    if len(kinds) > MAX_FEATURES:
        raise ContextError(
            f"the contexts have {len(kinds)} features ({one_of(sorted(kinds))}); at most {MAX_FEATURES} are allowed. "
            "Take the decisions of one policy (policy=)"
        )
    return kinds


def spaces_for(num_actions: int, features: Mapping[str, FeatureKind]) -> Spaces:
    """Returns the spaces of steps with one of ``num_actions`` actions and these features."""
    shown: dict[str, ObservationSpace] = {
        "goal": Text(num_buckets=GOAL_BUCKETS),
        "goal_digest": _DIGEST,
        "num_steps": _COUNT,
        "previous_action": Discrete(n=num_actions + 1),
        "previous_outcome": Discrete(n=3),
    }
    if features:
        text = Text(num_buckets=TEXT_BUCKETS)
        shown["context"] = Dict(
            spaces={name: _NUMBER if kind == "number" else text for name, kind in sorted(features.items())}
        )
    return Spaces(observation=Dict(spaces=shown), action=Discrete(n=num_actions))


def observation_of(
    spaces: Spaces,
    action_names: Sequence[str],
    *,
    goal: str = "",
    num_steps: int = 0,
    previous_action: str | None = None,
    succeeded: bool | None = None,
    context: Json | None = None,
) -> dict[str, Any]:
    """Returns what a policy that was learned from logs sees of a step: for an agent that acts.

    Args:
        spaces: of the data set.
        action_names: of the data set.
        goal: what is to be reached.
        num_steps: steps of the episode so far.
        previous_action: the step before; None: there was none.
        succeeded: how that came out; None: not known yet.
        context: the features of the decision; those that are not given count as absent.

    Raises:
        ActionError: ``previous_action`` is not one of ``action_names``.
        ContextError: ``context`` has features that the data set does not.
    """
    layout = ObservationLayout(spaces, action_names)
    if previous_action is not None and previous_action not in action_names:
        raise ActionError(f"previous_action is {previous_action!r}; the data set has {one_of(action_names)}")
    shown: dict[str, Any] = {
        "goal": goal,
        "goal_digest": np.array([_digest(goal)], dtype=np.float32),
        "num_steps": np.array([math.log1p(num_steps)], dtype=np.float32),
        "previous_action": 0 if previous_action is None else 1 + list(action_names).index(previous_action),
        "previous_outcome": UNKNOWN if succeeded is None else SUCCEEDED if succeeded else FAILED,
    }
    if layout.features:
        shown["context"] = layout.values(context or {})
    elif context:
        raise ContextError(f"the context has {one_of(context)}, and the data set knows no features")
    return shown


class ObservationLayout:
    """Where each part of an observation stands, for the spaces that ``spaces_for`` makes.

    Attributes:
        size: how many numbers an observation has.
        features: those of contexts, by name.
    """

    def __init__(self, spaces: Spaces, action_names: Sequence[str] | None) -> None:
        """Takes the spaces and the names of the actions of a data set.

        Raises:
            UsageError: they are not those of a data set that was made of traces.
        """
        shown = spaces.observation.spaces if isinstance(spaces.observation, Dict) else {}
        context = shown.get("context")
        contexts = context.spaces if isinstance(context, Dict) else {}
        self.features: dict[str, FeatureKind] = {
            name: "text" if isinstance(space, Text) else "number" for name, space in sorted(contexts.items())
        }
        if action_names is None or spaces != spaces_for(len(action_names), self.features):
            raise UsageError("this data set was not made of traces: its observations show something else")
        self.size = 0
        self._first: dict[str, int] = {}
        for name, space in sorted(shown.items()):
            self._first[name] = self.size
            self.size += ObservationEncoder(space).size
        self._context = None if context is None else ObservationEncoder(context)
        self._text = ObservationEncoder(Text(num_buckets=GOAL_BUCKETS))
        self._goal = lru_cache(maxsize=4096)(self._encode_goal)

    def write(self, seen: Seen, rows: F32) -> None:
        """Writes observations into ``rows``, zeros of shape ``(num, size)``.

        Raises:
            ContextError: a context does not fit the features.
        """
        first, every = self._first, np.arange(len(rows))
        goals = rows[:, first["goal"] : first["goal_digest"] + 1]  # they stand side by side
        for row, goal in zip(goals, seen.goals, strict=True):
            row[:] = self._goal(goal)
        rows[:, first["num_steps"]] = np.log1p(seen.num_steps)
        rows[every, first["previous_action"] + seen.previous] = 1.0
        rows[every, first["previous_outcome"] + seen.outcomes] = 1.0
        encoder = self._context
        if encoder is not None:
            contexts = rows[:, first["context"] : first["context"] + encoder.size]
            for row, context in zip(contexts, seen.contexts, strict=True):
                encoder.encode_into(self.values(context), row)

    def _encode_goal(self, goal: str) -> F32:
        row = np.empty(GOAL_BUCKETS + 1, dtype=np.float32)
        self._text.encode_into(goal, row[:-1])
        row[-1] = _digest(goal)
        return row

    def values(self, context: Json) -> dict[str, Any]:
        """Returns the value of each feature; one that ``context`` lacks is absent: it is not 0.

        Raises:
            ContextError: a feature is unknown, or text where numbers are known.
        """
        unknown = [name for name in context if name not in self.features]
        if unknown:
            raise ContextError(
                f"the context has unknown features {one_of(unknown)}; the data set knows {one_of(self.features)}"
            )
        return {
            name: _number(name, context.get(name)) if kind == "number" else sorted_text(context.get(name))
            for name, kind in self.features.items()
        }


def _digest(goal: str) -> float:
    """Returns a number from -1 to 1 that is another for each goal, also where words and letters are the same."""
    digest = hashlib.sha256(goal.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:3]) / 2**23 - 1.0


def _number(name: str, value: object) -> F32:
    if value is None:
        return np.zeros(2, dtype=np.float32)
    if not isinstance(value, bool | int | float):
        raise ContextError(f"the context feature {name!r} is {value!r}; the data set knows it as a number")
    size = math.log1p(min(abs(value), _LARGEST))
    return np.array([size if value > 0 else -size, 1.0], dtype=np.float32)
