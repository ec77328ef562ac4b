"""A reward learned from the labels of a store, with the real sentence model; and what to label next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop.core.attempts import Attempt
from learnloop.core.errors import CheckFailedError, CorruptError, NotFoundError, UsageError
from learnloop.core.records import LabelRequest
from learnloop.loop import Settings, Workspace
from learnloop.loop.rewards.engine import make_engine
from learnloop.loop.rewards.learned import fill_label_queue, learn_reward, newest_learned_reward
from learnloop.loop.workspace.settings import RewardSettings
from tests.loop.recorded_runs import answered
from tests.rewards.labelled_texts import labelled_attempts

WORST = "I am sorry, but I cannot help you with that request, since it is outside of what I am allowed to talk about."
BEST = (
    "To sharpen a kitchen knife, start with these three steps: gather what you need, follow the instructions, check it."
)


@pytest.fixture
def workspace(tmp_path: Path, embedder_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(embedder_folder))
    settings = Settings(home=tmp_path / "home", database=f"sqlite:///{tmp_path}/l.db", origins={})
    with Workspace(settings, create=True) as opened:
        yield opened


@pytest.fixture
def labelled(workspace: Workspace) -> Workspace:
    """A store with 90 labelled episodes of thirty tasks."""
    for number, each in enumerate(labelled_attempts(seed=3, per_topic=3)):
        run = answered(f"e{number:03}", str(each.attempt.prompt), str(each.attempt.output), each.attempt.task_id)
        workspace.store.write(run)
        workspace.labels.give(f"e{number:03}", each.value, author="ada")
    return workspace


def test_too_few_labels_are_told(workspace: Workspace) -> None:
    with pytest.raises(CheckFailedError, match="20 of each kind"):
        learn_reward(workspace)
    assert newest_learned_reward(workspace) is None
    with pytest.raises(NotFoundError, match="labels learn"):
        make_engine(workspace, RewardSettings(weights={"correctness": 1.0, "learned": 1.0}, learned="newest"))


def test_it_is_learned_kept_and_used_beside_others(labelled: Workspace) -> None:
    learned, place = learn_reward(labelled)
    assert (learned.report.num_labels, learned.report.num_tasks) == (90, 30)
    assert learned.report.auc.low is not None
    assert learned.report.auc.low > 0.5
    assert newest_learned_reward(labelled) == place
    both = RewardSettings(weights={"task_completion": 1.0, "learned": 1.0}, learned="newest")
    engine = make_engine(labelled, both)
    good, bad = (
        engine.score(Attempt(prompt="How do I sharpen a knife?", output=text, completed=True)) for text in (BEST, WORST)
    )
    assert good.scores["learned"].value is not None
    assert bad.scores["learned"].value is not None
    assert good.scores["learned"].value > bad.scores["learned"].value
    with pytest.raises(UsageError, match="only components"):
        make_engine(labelled, RewardSettings(weights={"learned": 1.0}, learned=place.name))
    assert make_engine(labelled, RewardSettings(weights={"learned": 1.0}, learned=place.name, learned_alone=True))
    (place / "weights.safetensors").write_bytes(b"x")
    with pytest.raises(CorruptError):
        make_engine(labelled, both)


@pytest.mark.parametrize("name", ["../elsewhere", "", "a/b"])
def test_only_what_is_kept_can_be_named(workspace: Workspace, name: str) -> None:
    with pytest.raises(UsageError, match=r"rewards\.learned"):
        make_engine(workspace, RewardSettings(weights={"correctness": 1.0, "learned": 1.0}, learned=name))


def test_what_to_label_next(labelled: Workspace) -> None:
    learn_reward(labelled)
    for number in range(6):
        labelled.store.write(answered(f"n{number}", "How do I swim?", BEST if number % 2 else WORST, f"swim{number}"))
    opened = fill_label_queue(labelled, 4, seed=1)
    assert len(opened) == 4
    assert {each.episode_id[0] for each in opened} == {"n"}
    assert all(each.suggested_value is not None and each.suggested_by for each in opened)
    assert len(fill_label_queue(labelled, 10)) == 2  # those that are asked about already are not asked about again
    shown = labelled.labels.list()
    assert shown[0].prompt == "How do I swim?"
    assert [each.request.priority for each in shown] == sorted((each.request.priority for each in shown), reverse=True)
    labelled.labels.skip(shown[0].request.label_request_id, author="ada")
    assert fill_label_queue(labelled, 10) == []
    assert labelled.store.count(LabelRequest) == 6
