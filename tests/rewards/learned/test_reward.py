"""The learned reward on real embeddings: what it learns, what it refuses, what it reports, how it is stored."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from learnloop.core.attempts import Attempt, Score
from learnloop.core.errors import CheckFailedError, CorruptError, NotFoundError, StoreReadOnlyError, UsageError
from learnloop.core.protocols import Embedder
from learnloop.models import CachedEmbedder, LocalEmbedder, VectorCache
from learnloop.rewards import RewardFunction
from learnloop.rewards.learned.features import FIGURES, NAMES, Design, features_of, task_of
from learnloop.rewards.learned.files import load_learned_reward, save_learned_reward
from learnloop.rewards.learned.fitting import fit_learned_reward
from learnloop.rewards.learned.reward import Labelled, LearnedReward, LearnedRewardConfig, require_another
from tests.rewards.labelled_texts import GOOD, labelled_attempts, shuffled_labels, values


@pytest.fixture(scope="module")
def embedder(local_embedder: LocalEmbedder, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with VectorCache(tmp_path_factory.mktemp("vectors") / "vectors.db") as cache:
        yield CachedEmbedder(local_embedder, cache)


@pytest.fixture(scope="module")
def reward(embedder: Embedder) -> LearnedReward:
    return fit_learned_reward(labelled_attempts(0, noise=0.1), embedder)


def changed(attempt: Attempt, **fields: Any) -> Attempt:
    return msgspec.structs.replace(attempt, **fields)


# Learning -------------------------------------------------------------------------------------------------------------


def test_it_learns_what_people_like(reward: LearnedReward, embedder: Embedder) -> None:
    """F3.10: not counts of names of tools, but meaning: good answers at topics that nobody labelled score higher."""
    report = reward.report
    reward.check_usable()
    assert report.auc.low is not None
    assert report.auc.low > 0.6
    assert report.brier < report.brier_of_mean
    assert report.calibration_error < 0.25
    assert (report.num_labels, report.num_tasks, report.num_held_out_tasks) == (180, 30, 8)
    fresh = labelled_attempts(7)
    scores = reward.score_all([each.attempt for each in fresh])
    found = {
        good: np.mean(
            [s.value for s, each in zip(scores, fresh, strict=True) if s.value is not None and each.value == good]
        )
        for good in (0.0, 1.0)
    }
    assert found[1.0] > found[0.0] + 0.3
    assert all(0.0 < score.details["uncertainty"] < 0.5 for score in scores if score.value is not None)
    assert fit_learned_reward(labelled_attempts(0, noise=0.1), embedder).content_hash == reward.content_hash


def test_labels_between_are_learned_from(embedder: Embedder) -> None:
    soft = [Labelled(each.attempt, 0.15 + 0.7 * each.value) for each in labelled_attempts(1, 4)]
    model = fit_learned_reward(soft, embedder)
    scores = [score.value for score in model.score_all([each.attempt for each in soft])]
    assert np.mean(np.abs(np.array(scores, dtype=float) - values(soft))) < 0.15


def test_length_is_reported(embedder: Embedder) -> None:
    """F1.7: where people label long answers good, the report says that length alone does as well."""
    labelled = []
    for each in labelled_attempts(2, 4):
        is_long = each.value > 0.5
        output = f"{each.attempt.output} " + "and so on, as before, in the same way. " * (6 if is_long else 0)
        labelled.append(Labelled(changed(each.attempt, output=output), float(is_long)))
    report = fit_learned_reward(labelled, embedder).report
    assert report.length_auc is not None
    assert report.length_auc > 0.95
    assert report.label_length_correlation is not None
    assert report.label_length_correlation > 0.7
    usual = fit_learned_reward(labelled_attempts(2, 4), embedder).report
    assert usual.length_auc is not None
    assert usual.length_auc < 0.75


def test_over_optimisation_is_reported(reward: LearnedReward) -> None:
    """H6: proxy and labels of best-of-n, on held-out tasks."""
    points = reward.report.curve.points
    assert [point.n for point in points] == [1, 2, 4]
    assert points[-1].proxy > points[0].proxy
    assert points[-1].gold > points[0].gold + 0.1
    assert points[0].gold_error is not None


# What it refuses ------------------------------------------------------------------------------------------------------


def test_labels_without_meaning_make_no_reward(embedder: Embedder) -> None:
    """Of shuffled labels hardly one model passes; one that does not gives no score, never a half."""
    passed = 0
    for seed in range(12):
        model = fit_learned_reward(shuffled_labels(labelled_attempts(seed, 4), seed), embedder)
        if model.report.reason_against is None:
            passed += 1
            continue
        with pytest.raises(CheckFailedError, match="not surely better than chance"):
            model.check_usable()
        score = model(labelled_attempts(0)[0].attempt)
        assert score.value is None
        assert score.is_applicable
        assert "is not used" in (score.reason or "")
    assert passed <= 2


def test_too_few_labels_are_told(embedder: Embedder) -> None:
    labelled = labelled_attempts(0)
    good = [each for each in labelled if each.value == 1.0]
    bad = [each for each in labelled if each.value == 0.0]
    with pytest.raises(CheckFailedError, match=r"30 good and 3 bad labels .*20 of each kind and 8 tasks are needed"):
        fit_learned_reward(good[:30] + bad[:3], embedder)
    one_task = [Labelled(changed(each.attempt, task_id="t"), each.value) for each in labelled]
    with pytest.raises(CheckFailedError, match="at 1 tasks"):
        fit_learned_reward(one_task, embedder)
    apart = [Labelled(changed(each.attempt, task_id="g"), 1.0) for each in good[:25]]
    with pytest.raises(CheckFailedError, match="label attempts at more tasks"):
        fit_learned_reward(apart + bad[:60], embedder)
    with pytest.raises(UsageError, match="not from 0"):
        fit_learned_reward([*labelled, Labelled(labelled[0].attempt, 1.5)], embedder)
    with pytest.raises(UsageError, match="not from 0"):
        fit_learned_reward([*labelled, Labelled(labelled[0].attempt, math.nan)], embedder)


def test_what_is_unlike_all_labels_is_not_scored(reward: LearnedReward) -> None:
    """The answer of a hacker: a good one, a hundred times over."""
    attempt = labelled_attempts(3)[0].attempt
    usual = reward(changed(attempt, output=GOOD[0].format(topic="reset a forgotten password")))
    assert usual.value is not None
    padded = reward(changed(attempt, output=GOOD[0].format(topic="reset a forgotten password") * 100))
    assert padded == Score.unknown("its output_length lies outside of all that was labelled; label attempts like it")
    assert "duration_seconds" in (reward(changed(attempt, duration_seconds=1e6)).reason or "")
    silent = reward(changed(attempt, output=None))
    assert silent.value is None
    assert silent.is_applicable


def test_what_is_not_known_is_not_zero(reward: LearnedReward) -> None:
    """A run without figures is scored by its text; a figure that was never seen in labels says nothing."""
    attempt = labelled_attempts(3)[0].attempt
    bare = Attempt(prompt=attempt.prompt, output=attempt.output)
    found = features_of([bare, attempt], reward.embedder)
    known = dict(zip(NAMES, found.figures[0], strict=True))
    assert {name for name, value in known.items() if not math.isnan(value)} == {
        "output_length",
        "prompt_length",
        "similarity",
    }
    assert reward(bare).value is not None
    tokens = changed(attempt, num_input_tokens=10**9)  # no labelled attempt told its input tokens
    assert reward(tokens).value == reward(attempt).value
    assert reward(changed(attempt, num_output_tokens=None)).value is not None


def test_a_task_is_on_one_side_only() -> None:
    assert task_of(Attempt(task_id="t", prompt="p")) == task_of(Attempt(task_id="t"))
    assert task_of(Attempt(prompt="p", episode_id="1")) == task_of(Attempt(prompt="p", episode_id="2"))
    assert task_of(Attempt(episode_id="1")) != task_of(Attempt(episode_id="2"))


def test_columns_are_standardised(embedder: Embedder) -> None:
    features = features_of([each.attempt for each in labelled_attempts(5)], embedder)
    columns = Design.of(features).columns(features)
    texts = columns[:, : 2 * embedder.dimension]
    np.testing.assert_allclose(columns[:, : texts.shape[1] + len(FIGURES)].mean(axis=0), 0.0, atol=1e-9)
    assert texts[:, : embedder.dimension].var(axis=0).sum() == pytest.approx(32.0)
    assert texts[:, embedder.dimension :].var(axis=0).sum() == pytest.approx(32.0)
    lengths = columns[:, texts.shape[1]]
    assert lengths.std() == pytest.approx(1.0)


def test_a_learned_reward_does_not_stand_alone(reward: LearnedReward) -> None:
    """H6: something that is checked has to stand beside it, with a weight."""

    def checked(attempt: Attempt) -> Score:
        return Score.of(1.0)

    require_another({"learned": (reward, 1.0), "checked": (checked, 0.5)})
    require_another({"checked": (checked, 1.0)})
    require_another({})
    wrapped = RewardFunction(reward, "learned")
    assert wrapped(labelled_attempts(3)[0].attempt).value is not None
    for components in (
        {"learned": (reward, 1.0)},
        {"learned": (wrapped, 1.0)},
        {"learned": (reward, 1.0), "checked": (checked, 0.0)},
    ):
        with pytest.raises(UsageError, match=r"are learned \(learned\); add one that is checked"):
            require_another(components)


@pytest.mark.parametrize(
    "settings", [{"held_out_share": 1.0}, {"num_folds": 1}, {"penalties": ()}, {"min_labels": 1}, {"confidence": 1.0}]
)
def test_a_wrong_configuration_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(settings))} is"):
        LearnedRewardConfig(**settings)


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_stored_reward_is_the_same(reward: LearnedReward, embedder: Embedder, tmp_path: Path) -> None:
    place = save_learned_reward(reward, tmp_path)
    assert place.name == reward.content_hash
    assert save_learned_reward(reward, tmp_path) == place
    again = load_learned_reward(place, embedder)
    assert again.report == reward.report
    attempts = [each.attempt for each in labelled_attempts(9, 1)]
    assert again.score_all(attempts) == reward.score_all(attempts)
    assert [each.name for each in tmp_path.iterdir()] == [place.name]


def test_two_write_the_same_at_once(reward: LearnedReward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Path.mkdir

    def late(self: Path, *args: Any, **kwargs: Any) -> None:
        """Somebody else is done just now."""
        monkeypatch.setattr(Path, "mkdir", original)
        save_learned_reward(reward, tmp_path)
        original(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", late)
    place = save_learned_reward(reward, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [place.name]
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreReadOnlyError, match="cannot be written"):
        save_learned_reward(reward, tmp_path / "file")


@pytest.mark.parametrize("damage", ["json", "weights", "cut", "lost"])
def test_damage_is_found(reward: LearnedReward, embedder: Embedder, tmp_path: Path, damage: str) -> None:
    place = save_learned_reward(reward, tmp_path)
    path = place / ("reward.json" if damage == "json" else "weights.safetensors")
    data = path.read_bytes()
    if damage == "lost":
        path.unlink()
        with pytest.raises(NotFoundError, match="no learned reward"):
            load_learned_reward(place, embedder)
        return
    path.write_bytes(data[:-10] if damage == "cut" else data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    with pytest.raises(CorruptError, match="changed"):
        load_learned_reward(place, embedder)


def test_learning_again_mends_what_was_damaged_and_makes_it_the_newest(
    reward: LearnedReward, embedder: Embedder, tmp_path: Path
) -> None:
    place = save_learned_reward(reward, tmp_path)
    os.utime(place, (1.0, 1.0))
    save_learned_reward(reward, tmp_path)
    assert place.stat().st_mtime > 1.0
    (place / "weights.safetensors").write_bytes(b"x")
    assert save_learned_reward(reward, tmp_path) == place
    assert load_learned_reward(place, embedder).report == reward.report
    assert [each.name for each in tmp_path.iterdir()] == [place.name]


def test_another_embedder_is_refused(reward: LearnedReward, tmp_path: Path) -> None:
    """Vectors of two models are never mixed."""

    class Other(LocalEmbedder):
        def __init__(self) -> None:
            self.name, self.dimension, self.content_id = "another", 384, "another-1"

    place = save_learned_reward(reward, tmp_path)
    with pytest.raises(UsageError, match=r"learned with all-MiniLM-L6-v2 \(int8\).*not with another"):
        load_learned_reward(place, Other())
    told = json.loads((place / "reward.json").read_text())
    assert told["report"]["num_labels"] == 180
    assert "pickle" not in (place / "reward.json").read_text()
