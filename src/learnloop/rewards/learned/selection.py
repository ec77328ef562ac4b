"""Which attempts a person should label next: those that the model is unsure of, unlike each other, and some by chance.

The part by chance keeps the labels a sample of what comes in, so that a model that is surely wrong is found out.

Source: Lewis and Gale 1994, "A Sequential Algorithm for Training Text Classifiers" (uncertainty); Sener and Savarese
2018, "Active Learning for Convolutional Neural Networks: A Core-Set Approach", algorithm 1 (k-centre, farthest first).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.attempts import Attempt
from learnloop.core.checks import check_range
from learnloop.core.errors import UsageError
from learnloop.core.protocols import Embedder
from learnloop.core.records import LabelRequest
from learnloop.core.seeding import generator
from learnloop.rewards.learned.features import AttemptFeatures, features_of
from learnloop.rewards.learned.label_queue import LabelAsk, LabelQueue
from learnloop.rewards.learned.reward import LearnedReward


class SelectionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How attempts are chosen."""

    seed: int = 0
    random_share: float = 0.2
    """Of those that are chosen, by chance."""

    def __post_init__(self) -> None:
        """Refuses a share that is not from 0 to 1."""
        check_range("random_share", self.random_share, 0, 1)


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that was chosen."""

    index: int
    """Which one of those that were given."""
    reason: str
    """``uncertain``: the model is not sure of it; ``different``: it is unlike all others, and there is no model yet;
    ``random``: by chance."""
    priority: float
    """From 1, the first that was chosen, down to above 0."""
    suggested_value: float | None
    """What the model takes it to be worth; None: no model."""


def select_for_labels(
    candidates: Sequence[Attempt],
    labelled: Sequence[Attempt],
    number: int,
    embedder: Embedder,
    model: LearnedReward | None = None,
    config: SelectionConfig | None = None,
) -> list[Selected]:
    """Returns ``number`` of the candidates, or all where there are fewer, the most useful first; the same for one seed.

    Each is the one with the largest product of its uncertainty and its distance to all that is labelled or chosen
    already; without a model the distance alone counts. Candidates without an output are never chosen.

    Args:
        candidates: attempts without labels.
        labelled: those with labels.
        number: how many to choose.
        embedder: what texts are seen through.
        model: the reward as learned so far, usable or not; None: none was learned.
        config: None: as ``SelectionConfig`` says.
    """
    chosen_config = config or SelectionConfig()
    check_range("number", number, 1)
    features = features_of(candidates, embedder)
    usable = np.flatnonzero(features.is_readable)
    number = min(number, len(usable))
    num_random = round(chosen_config.random_share * number)
    if not number:
        return []
    rows = features.rows(usable)
    chances = None if model is None else model.model.chances(rows)[0]
    order = _farthest(rows, features_of(labelled, embedder), _usefulness(rows, model), number - num_random)
    why = "different" if model is None else "uncertain"
    rng = generator(chosen_config.seed, "labels", len(labelled))
    rest = rng.permutation(np.setdiff1d(np.arange(len(usable)), order))[:num_random]
    listed = [(row, why) for row in order] + [(int(row), "random") for row in rest]
    listed = [listed[place] for place in _mixed(len(order), len(rest))]
    return [
        Selected(
            index=int(usable[row]),
            reason=reason,
            priority=1.0 - place / len(listed),
            suggested_value=None if chances is None else float(chances[row]),
        )
        for place, (row, reason) in enumerate(listed)
    ]


def ask_for_labels(
    queue: LabelQueue, candidates: Sequence[Attempt], selected: Sequence[Selected], model: LearnedReward | None = None
) -> list[LabelRequest]:
    """Puts the chosen attempts into the label queue, with the model's suggestion, and returns the opened requests.

    Raises:
        UsageError: an attempt has no episode that a label could be given to.
    """
    asks = []
    for each in selected:
        episode_id = candidates[each.index].episode_id
        if episode_id is None:
            raise UsageError(f"attempt {each.index} has no episode_id; only stored episodes can be labelled")
        asks.append(
            LabelAsk(
                episode_id=episode_id,
                reason=each.reason,
                priority=each.priority,
                suggested_value=each.suggested_value,
                suggested_by=None if model is None else model.content_hash,
            )
        )
    return queue.ask(asks)


def _usefulness(rows: AttemptFeatures, model: LearnedReward | None) -> F64:
    """Returns how unsure the model is of each row: the spread of the label that it expects, and of that expectation."""
    if model is None:
        return np.ones(len(rows.is_readable))
    chances, uncertainties = model.model.chances(rows)
    return np.sqrt(chances * (1.0 - chances) + uncertainties**2)


def _farthest(rows: AttemptFeatures, labelled: AttemptFeatures, usefulness: F64, number: int) -> list[int]:
    """Returns ``number`` rows: each has the largest usefulness times its distance to those labelled and chosen."""
    points = np.hstack([rows.prompts, rows.outputs])
    distances = np.full(len(points), 2.0)
    for other in np.hstack([labelled.prompts, labelled.outputs]):
        np.minimum(distances, np.linalg.norm(points - other, axis=1), out=distances)
    chosen: list[int] = []
    for _ in range(number):
        worth = usefulness * (distances + 1e-9)  # of equal texts the more uncertain goes first
        worth[chosen] = -1.0
        best = int(np.argmax(worth))
        chosen.append(best)
        np.minimum(distances, np.linalg.norm(points - points[best], axis=1), out=distances)
    return chosen


def _mixed(num_chosen: int, num_random: int) -> list[int]:
    """Returns places such that those by chance, which come last, are spread among the others."""
    keys = [(place + 0.5) / max(num_chosen, 1) for place in range(num_chosen)]
    keys += [(place + 0.5) / max(num_random, 1) for place in range(num_random)]
    return sorted(range(num_chosen + num_random), key=lambda place: keys[place])
