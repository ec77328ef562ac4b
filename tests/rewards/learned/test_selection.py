"""Which attempts are labelled next: order, shares, and whether fewer labels are needed than by chance."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest

from learnloop.core.attempts import Attempt
from learnloop.core.errors import UsageError
from learnloop.core.protocols import Embedder
from learnloop.core.records import Episode, EpisodeStatus
from learnloop.core.seeding import generator
from learnloop.models import CachedEmbedder, LocalEmbedder, VectorCache
from learnloop.rewards.learned.features import features_of
from learnloop.rewards.learned.fitting import fit_learned_reward
from learnloop.rewards.learned.label_queue import LabelQueue
from learnloop.rewards.learned.reward import Labelled, LearnedRewardConfig
from learnloop.rewards.learned.score_quality import auc
from learnloop.rewards.learned.selection import SelectionConfig, ask_for_labels, select_for_labels
from learnloop.store import Store
from tests.rewards.labelled_texts import TOPICS, labelled_attempts, values


@pytest.fixture(scope="module")
def embedder(local_embedder: LocalEmbedder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CachedEmbedder]:
    with VectorCache(tmp_path_factory.mktemp("vectors") / "vectors.db") as cache:
        yield CachedEmbedder(local_embedder, cache)


def attempts_of(labelled: list[Labelled]) -> list[Attempt]:
    return [each.attempt for each in labelled]


def test_unlike_ones_are_chosen_first(embedder: Embedder) -> None:
    """Without a model: what is far from all that is labelled, and never two that are the same."""
    candidates = [
        Attempt(prompt="How do I swim?", output="Kick with your legs."),
        Attempt(prompt="How do I swim?", output="Kick with your legs!"),
        Attempt(prompt="What is 2 + 2?", output="4"),
        Attempt(prompt="Who wrote Faust?", output="Goethe did."),
        Attempt(prompt="Nothing came out"),
    ]
    chosen = select_for_labels(candidates, [candidates[3]], 2, embedder, config=SelectionConfig(random_share=0.0))
    assert {each.index for each in chosen} in ({0, 2}, {1, 2})
    assert {each.reason for each in chosen} == {"different"}
    assert [each.suggested_value for each in chosen] == [None, None]
    everything = select_for_labels(candidates, [], 99, embedder)
    assert sorted(each.index for each in everything) == [0, 1, 2, 3]
    assert select_for_labels(candidates[4:], [], 3, embedder) == []


def test_a_part_is_chosen_by_chance(embedder: Embedder) -> None:
    """So many as the configuration says, spread among the others, and the same for one seed."""
    labelled = labelled_attempts(0)
    model = fit_learned_reward(labelled, embedder)
    candidates = attempts_of(labelled_attempts(50))
    chosen = select_for_labels(candidates, attempts_of(labelled), 20, embedder, model)
    assert [each.reason for each in chosen].count("random") == 4
    assert "random" in [each.reason for each in chosen[:10]]
    assert len({each.index for each in chosen}) == 20
    assert [each.priority for each in chosen] == sorted((each.priority for each in chosen), reverse=True)
    assert all(each.suggested_value is not None and 0 <= each.suggested_value <= 1 for each in chosen)
    assert chosen == select_for_labels(candidates, attempts_of(labelled), 20, embedder, model)
    other = select_for_labels(candidates, attempts_of(labelled), 20, embedder, model, SelectionConfig(seed=1))
    assert {each.index for each in other if each.reason == "random"} != {
        each.index for each in chosen if each.reason == "random"
    }
    with pytest.raises(UsageError, match="number is 0"):
        select_for_labels(candidates, [], 0, embedder)
    with pytest.raises(UsageError, match="random_share is 2"):
        SelectionConfig(random_share=2.0)


def test_the_chosen_are_put_into_the_queue(embedder: Embedder, store: Store) -> None:
    """With what the model takes them to be worth, for a person to accept or change."""
    labelled = labelled_attempts(0)
    model = fit_learned_reward(labelled, embedder)
    candidates = attempts_of(labelled_attempts(51, 1))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    store.write(
        Episode(
            episode_id=str(each.episode_id), trace_id="t", agent_id="a", task_id=None, status=EpisodeStatus.COMPLETED,
            started_at=at,
        )
        for each in candidates
    )  # fmt: skip
    chosen = select_for_labels(candidates, attempts_of(labelled), 5, embedder, model)
    queue = LabelQueue(store)
    ask_for_labels(queue, candidates, chosen, model)
    found = queue.pending().requests
    assert [request.episode_id for request in found] == [candidates[each.index].episode_id for each in chosen]
    assert {request.suggested_by for request in found} == {model.content_hash}
    assert queue.accept(found[0].label_request_id, "eva").value == pytest.approx(chosen[0].suggested_value)
    with pytest.raises(UsageError, match="no episode_id"):
        ask_for_labels(queue, [msgspec.structs.replace(candidates[0], episode_id=None)] * 99, chosen, model)


@pytest.mark.slow
def test_no_more_labels_are_needed_than_by_chance(embedder: Embedder) -> None:
    """S3.7: over twelve seeds the chosen labels are worth at least as much as as many by chance.

    The AUC is of topics without any label. Both begin with the same 40 labels, of which a tenth is wrong.
    """
    by_chance = np.array([_curve(seed, embedder, chooses=False) for seed in range(12)])
    chosen = np.array([_curve(seed, embedder, chooses=True) for seed in range(12)])
    np.testing.assert_array_equal(by_chance[:, 0], chosen[:, 0])
    found = f"{by_chance.mean(axis=0)} by chance, {chosen.mean(axis=0)} chosen"
    assert chosen[:, 1:].mean() >= by_chance[:, 1:].mean() - 0.005, found
    assert chosen[:, -1].mean() >= by_chance[:, -1].mean(), found


def _curve(seed: int, embedder: Embedder, *, chooses: bool) -> list[float]:
    """Returns the AUC on topics without labels after 40, 55, 70 and 85 labels."""
    config = LearnedRewardConfig(min_labels=10)
    pool = labelled_attempts(seed, 8, 0.1, num_topics=20)
    test = [each for each in labelled_attempts(100 + seed) if each.attempt.task_id in TOPICS[20:]]
    order = [int(place) for place in generator(seed, "pool").permutation(len(pool))]
    known, curve = order[:40], []
    while True:
        model = fit_learned_reward([pool[place] for place in known], embedder, config)
        found = auc(model.model.chances(features_of(attempts_of(test), embedder))[0], values(test))
        assert found is not None
        curve.append(found)
        if len(known) >= 85:
            return curve
        rest = [place for place in order if place not in known]
        if chooses:
            candidates, seen = [pool[place].attempt for place in rest], [pool[place].attempt for place in known]
            chosen = select_for_labels(candidates, seen, 15, embedder, model, SelectionConfig(seed=seed))
            rest = [rest[each.index] for each in chosen]
        known = known + rest[:15]
