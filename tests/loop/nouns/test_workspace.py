"""``ll.Workspace``: from what agents did to a policy that is trained, listed, aliased and evaluated."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import learnloop as ll
from learnloop.algorithms import ExplorationConfig
from learnloop.core.errors import ConflictError, NotFoundError, UsageError
from learnloop.core.rewards import RewardTarget
from learnloop.loop import find_settings
from learnloop.loop.rewards.scoring import EpisodeChoice
from learnloop.rewards import LabelAsk, LabelQueue


def test_from_stored_runs_to_a_trained_policy(tmp_path: Path) -> None:
    with ll.Loop("bot", home=tmp_path, seed=1) as loop:
        for number in range(30):
            with loop.episode(task=f"t{number}") as ep:
                choice = loop.choose("side", ["left", "right"], {"light": float(number % 2)})
                ep.reward(right=float((choice == "left") == (number % 2 == 0)))
        loop.flush()
        dataset, report = loop.workspace.datasets.build(agent="bot")
    assert (report.num_episodes, dataset.num_steps) == (30, 30)
    assert dataset.action_names == ("left", "right")
    run = ll.train("bc", dataset=dataset, updates=20, home=tmp_path)
    assert run.record.options.dataset == dataset.fingerprint()
    assert "<th>num_updates</th>" in run._repr_html_()
    assert "<td>20</td>" in run._repr_html_()


def test_no_runs_no_data_set(tmp_path: Path) -> None:
    with ll.Workspace(find_settings(tmp_path), create=True) as workspace, pytest.raises(UsageError):
        workspace.datasets.build(agent="nobody")


def test_policies_are_proven_listed_and_moved(tmp_path: Path) -> None:
    with ll.Loop("bot", home=tmp_path, seed=1) as loop:
        for number in range(600):
            with loop.episode(task=f"t{number}") as ep:
                choice = loop.choose("side", ["left", "right"], {"light": float(number % 2)})
                ep.reward(right=float((choice == "left") == (number % 2 == 0)))
        loop.flush()
        policies = loop.workspace.policies
        assert policies.list() == []
        assert policies.list()._repr_html_() == "<p>nothing yet</p>"
        proof = policies.prove("bot", "side", seed=0)
        assert "<td>learned</td><td>bot.side@1</td>" in proof._repr_html_()
        (row,) = policies.list().rows()
        assert (row["policy"], row["version"], row["is_proven"], row["aliases"]) == ("bot.side", 1, True, ["candidate"])
        policies.alias("bot.side@1", "champion", reason="better")
        shown = policies.show("bot.side")
        assert shown.aliases == {"candidate": 1, "champion": 1}
        assert [each.verdict for each in shown.certificates] == ["learned"]
        assert policies.find("bot.side@champion") == shown.version
        version, comparison = policies.evaluate("bot.side")
        assert version == shown.version
        assert comparison.difference > 0
        assert policies.prune("bot.side", keep=1) == []
        with pytest.raises(NotFoundError):
            policies.prune("bot.other", keep=1)


def test_labels_are_asked_for_given_and_listed(tmp_path: Path) -> None:
    with ll.Loop("bot", home=tmp_path) as loop:
        ids = []
        for number in range(4):
            with loop.episode(task=f"t{number}") as ep:
                ids.append(ep.episode_id)
        loop.flush()
        queue = LabelQueue(loop.workspace.store)
        queue.ask([LabelAsk(episode_id=each, reason="asked", priority=4 - at, suggested_value=0.8)
                   for at, each in enumerate(ids)])  # fmt: skip
        labels = loop.workspace.labels
        page = labels.list(limit=3)
        assert [row["episode_id"] for row in page.rows()] == ids[:3]
        assert [row["suggested_value"] for row in page.rows()] == [0.8] * 3
        (last,) = labels.list(limit=3, after=page.next_cursor)
        first, second, third = (each.request.label_request_id for each in page)
        assert labels.answer(first, "good", author="ada").value == 1.0
        assert labels.accept(second, author="ada").value == 0.8
        assert labels.skip(third, author="ada").closed_by == "ada"
        assert labels.give(last.request.episode_id, 0.25, author="eva").author == "eva"
        assert labels.list() == []
        assert labels.list().next_cursor is None
        with pytest.raises(ConflictError):
            labels.answer(first, "bad", author="eva")


def test_decisions_are_listed_rewarded_and_set(tmp_path: Path) -> None:
    with ll.Loop("bot", home=tmp_path, seed=1) as loop:
        made = [loop.choose("side", ["left", "right"], {"light": float(number)}) for number in range(3)]
        loop.flush()
        decisions = loop.workspace.decisions
        page = decisions.list(agent="bot", policy="side", limit=2)
        assert [row["decision_id"] for row in page.rows()] == [made[2].decision_id, made[1].decision_id]
        (oldest,) = decisions.list(agent="bot", limit=2, after=page.next_cursor)
        assert [each.value for each in decisions.reward(oldest.decision_id, {"clicked": 1.0}, author="ada")] == [1.0]
        assert decisions.show(oldest.decision_id).reward == 1.0
        held = decisions.settings("bot", "side")
        other = msgspec.structs.replace(held.settings, exploration=ExplorationConfig(epsilon=0.2))
        changed = decisions.change_settings("bot", "side", other, expected_version=held.version)
        assert decisions.settings("bot", "side") == changed
        versions = [row["version"] for row in decisions.settings_history("bot", "side").rows()]
        assert versions == list(range(changed.version, 0, -1))
        with pytest.raises(ConflictError):
            decisions.change_settings("bot", "side", held.settings, expected_version=held.version)
        assert decisions.updates("bot", "side") == []
        assert decisions.match_rate("bot", "side").share is None
        with pytest.raises(NotFoundError):
            decisions.show("none")


def test_rewards_are_calculated_shared_out_and_audited(tmp_path: Path) -> None:
    with ll.Loop("bot", home=tmp_path) as loop:
        ids = []
        for number in range(3):
            with loop.episode(task=f"t{number}") as ep:
                ids.append(ep.episode_id)
        loop.flush()
        rewards = loop.workspace.rewards
        done: list[int] = []
        process = rewards.make_process({"task_completion": 1.0}, "last")
        dry = rewards.calculate(process=process, dry_run=True)
        assert [row["total"] for row in dry.rows()] == [1.0] * 3
        assert rewards.list() == []
        found = rewards.calculate(EpisodeChoice(episodes=ids[:2]), process=process, progress=done.append)
        assert ([row["episode_id"] for row in found.rows()], done) == (ids[:2], [1, 1])
        told = rewards.process_task_completion("t2", {"episode_id": ids[2], "completed": True}, process=process)
        assert told.raw_reward == 1.0
        shares = rewards.history(limit=2)
        assert [row["episode_id"] for row in shares.rows()] == [ids[2], ids[1]]
        assert [row["episode_id"] for row in rewards.history(after=shares.next_cursor).rows()] == [ids[0]]
        totals = rewards.totals(limit=1)
        assert (totals.rows()[0]["credit"], totals.next_cursor) == (3.0, None)
        audit = rewards.audit(share=1.0, process=process)
        assert (audit.ok, audit.num_regraded, audit.different) == (True, 3, [])
        assert not rewards.audit(share=1.0, process=rewards.make_process({"correctness": 1.0})).ok
        given = rewards.record(RewardTarget(ids[0]), {"helpful": 0.5}, author="ada")
        assert [each.author for each in given] == ["ada"]
        assert [each.name for each in rewards.list(episode=ids[0], source="user")] == ["helpful"]
        names = [row["name"] for row in rewards.components().rows()]
        assert names[:2] == ["correctness", "task_completion"]
        with pytest.raises(NotFoundError):
            rewards.calibrate("judge")


def test_who_was_credited_is_listed_agent_by_agent(tmp_path: Path) -> None:
    with ll.Workspace(find_settings(tmp_path), create=True) as workspace:
        for agent in ("ada", "eva"):
            result = {"output": "4", "expected": "4", "task_type": "qa", "agents": [agent]}
            workspace.rewards.process_task_completion(f"of {agent}", result)
        first = workspace.rewards.totals(limit=1)
        assert ([each.agent_id for each in first], first.next_cursor) == (["ada"], "ada")
        second = workspace.rewards.totals(limit=1, after=first.next_cursor)
        assert ([each.agent_id for each in second], second.next_cursor) == (["eva"], None)


def test_episodes_are_imported_counted_exported_and_removed(tmp_path: Path) -> None:
    with ll.Loop("bot", home=tmp_path / "a") as loop:
        for number in range(3):
            with loop.episode(task=f"t{number}") as ep, loop.span("<plan>", "plan"):
                ep.reward(solved=float(number))
        loop.flush()
        assert loop.workspace.episodes.export(tmp_path / "runs.jsonl").unit == "records"
    with ll.Workspace(find_settings(tmp_path / "b"), create=True) as workspace:
        episodes = workspace.episodes
        assert episodes.import_(tmp_path / "runs.jsonl").num_records["episode"] == 3
        assert episodes.stats().num_episodes == 3
        page = episodes.list(reward_above=0.5)
        assert [(row["task_id"], row["reward"], row["status"]) for row in page.rows()] == [
            ("t2", 2.0, "completed"),
            ("t1", 1.0, "completed"),
        ]
        assert "<td>t2</td>" in page._repr_html_()
        newest = page[0].episode.episode_id
        assert [span.name for span in workspace.spans.outline(newest)] == ["bot", "<plan>"]
        assert "&lt;plan&gt;" in workspace.spans.outline(newest)._repr_html_()
        assert next(episodes.follow(last=100)).kind == "episode.started"
        assert episodes.remove(newest, dry_run=True).num_episodes == 1
        assert episodes.remove(newest).num_spans == 2
        assert episodes.remove_old(timedelta(days=1)).num_episodes == 0
        assert episodes.remove_old(timedelta(), agent="bot").num_episodes == 2
        assert episodes.list() == []
        with pytest.raises(UsageError):
            episodes.remove_old()
        with pytest.raises(TypeError):
            episodes.list(tusk="t1")  # type: ignore[call-arg]
