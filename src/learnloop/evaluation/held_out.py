"""What a policy earns on tasks that it was not trained on and on which every action was tried."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from learnloop.core.arrays import F64, Bools
from learnloop.core.decoding import decode_json
from learnloop.core.errors import FormatError, RewardError, UsageError
from learnloop.core.protocols import Context, Policy
from learnloop.evaluation.policies import DecisionPoint, distributions

OUTCOMES_SCHEMA = "learnloop.outcomes/v1"


class FixedChoice(NamedTuple):
    """An action taken everywhere and what it earns."""

    action: str
    rewards: F64
    """One a unit, shape ``(num_units,)``."""


class _OutcomesFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: str
    units: list[str]
    contexts: list[dict[str, Any]]
    actions: list[str]
    rewards: list[list[float | None]]
    masks: list[list[bool]] | None


class OutcomeTable:
    """Held-out tasks on which every action was tried, so that any policy's expected reward is known exactly."""

    def __init__(
        self,
        units: Sequence[str],
        contexts: Sequence[Context],
        actions: Sequence[str],
        rewards: ArrayLike,
        masks: ArrayLike | None = None,
    ) -> None:
        """Keeps what each action earned on each unit.

        Args:
            units: the episodes, all different.
            contexts: one a unit.
            actions: the actions, in the order of the columns.
            rewards: shape ``(num_units, num_actions)``; not read where an action is not allowed.
            masks: which actions are allowed, shape ``(num_units, num_actions)``; None: all.

        Raises:
            RewardError: a reward of an allowed action is missing or not finite.
            UsageError: sizes that do not fit, a unit or an action twice, or a unit without an allowed action.
        """
        self._units = tuple(units)
        self.contexts: tuple[Context, ...] = tuple(contexts)
        self.actions = tuple(actions)
        shape = (len(self._units), len(self.actions))
        try:
            table = np.array(rewards, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise RewardError(f"held-out rewards must be a table of numbers of shape {shape}: {error}") from error
        if shape[1] == 0 or table.shape != shape or len(self.contexts) != shape[0]:
            raise UsageError(
                f"{shape[0]} units and {shape[1]} actions need {shape[0]} contexts and rewards of shape {shape}; "
                f"there are {len(self.contexts)} contexts and rewards of shape {table.shape}"
            )
        for kind, names in (("unit", self._units), ("action", self.actions)):
            if len(set(names)) != len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise UsageError(f"{kind} {twice!r} is there more than once; each {kind} may appear once")
        self.masks: Bools | None = None if masks is None else _checked_masks(masks, shape, self._units)
        allowed = np.ones(shape, dtype=bool) if self.masks is None else self.masks
        num_bad = int(np.sum(allowed & ~np.isfinite(table)))
        if num_bad:
            raise RewardError(
                f"{num_bad} of {int(allowed.sum())} held-out rewards are missing or not finite; leave those units out"
            )
        table[~allowed] = np.nan  # unknown, and never read
        self._rewards, self._allowed = table, allowed
        masks_by_row = [None] * shape[0] if self.masks is None else self.masks.tolist()
        self._points = [
            DecisionPoint(unit, context, self.actions, mask)
            for unit, context, mask in zip(self._units, self.contexts, masks_by_row, strict=True)
        ]

    @property
    def units(self) -> Sequence[str]:
        """The episodes, one a row."""
        return self._units

    def without(self, units: Collection[str]) -> OutcomeTable:
        """Returns the table less the rows of ``units``."""
        rows = [row for row, unit in enumerate(self._units) if unit not in units]
        return OutcomeTable(
            [self._units[row] for row in rows],
            [self.contexts[row] for row in rows],
            self.actions,
            self._rewards[rows],
            None if self.masks is None else self.masks[rows],
        )

    def rewards(self, policy: Policy) -> F64:
        """Returns sum_a pi(a | x) r(x, a) for each unit, shape ``(num_units,)``.

        Raises:
            UsageError: the policy does not give a distribution over the allowed actions.
        """
        chosen = np.reshape(distributions(policy, self._points), self._rewards.shape)
        earned: F64 = np.sum(chosen * self._rewards, axis=1, where=self._allowed)
        return earned

    def best_fixed(self) -> FixedChoice:
        """Returns the action that, taken on every unit, earns most: known only in hindsight.

        Raises:
            UsageError: no action is allowed on every unit, or there is no unit.
        """
        everywhere = np.flatnonzero(self._allowed.all(axis=0))
        if everywhere.size == 0 or not self._units:
            raise UsageError(f"none of the {len(self.actions)} actions is allowed on all {len(self._units)} units")
        best = everywhere[np.argmax(self._rewards[:, everywhere].mean(axis=0))]
        return FixedChoice(self.actions[best], self._rewards[:, best].copy())

    def optimum(self) -> F64:
        """Returns what the best allowed action of each unit earns, shape ``(num_units,)``."""
        best: F64 = np.max(self._rewards, axis=1, where=self._allowed, initial=-np.inf)
        return best

    def random(self) -> F64:
        """Returns what a uniformly random allowed action is expected to earn on each unit, shape ``(num_units,)``."""
        mean: F64 = np.mean(self._rewards, axis=1, where=self._allowed)
        return mean

    def to_bytes(self) -> bytes:
        """Returns the table as JSON; rewards of forbidden actions are null."""
        return msgspec.json.encode(
            _OutcomesFile(
                schema=OUTCOMES_SCHEMA,
                units=list(self._units),
                contexts=[dict(context) for context in self.contexts],
                actions=list(self.actions),
                rewards=self._rewards.tolist(),  # msgspec writes NaN as null
                masks=None if self.masks is None else self.masks.tolist(),
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> OutcomeTable:
        """Returns the table that ``to_bytes`` wrote.

        Raises:
            FormatError: ``data`` is something else.
        """
        file = decode_json(data, f"these {len(data)} bytes are no table of outcomes", _OutcomesFile)
        if file.schema != OUTCOMES_SCHEMA:
            raise FormatError(f"a table of outcomes has the schema {OUTCOMES_SCHEMA!r}, this one has {file.schema!r}")
        rewards = [[np.nan if value is None else value for value in row] for row in file.rewards]
        width = len(file.actions)
        if any(len(row) != width for row in rewards) or any(len(row) != width for row in file.masks or []):
            raise FormatError(f"a table of outcomes with {width} actions has a row of another length")
        return cls(file.units, file.contexts, file.actions, np.reshape(rewards, (len(rewards), width)), file.masks)


def _checked_masks(masks: ArrayLike, shape: tuple[int, int], units: tuple[str, ...]) -> Bools:
    allowed = np.array(masks, dtype=bool)
    if allowed.shape != shape:
        raise UsageError(f"masks have shape {allowed.shape}; one row a unit and one column an action make {shape}")
    empty = np.flatnonzero(~allowed.any(axis=1))
    if empty.size:
        raise UsageError(f"the mask of unit {units[empty[0]]!r} allows no action; allow at least one")
    return allowed
