"""learnloop.loop.decisions.importing: logs of others become decisions that can be learned from and evaluated."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.errors import FormatError, LearnloopError, NotFoundError, UsageError
from learnloop.core.records import Decision, DecisionActivation, Reward
from learnloop.decisions import logged_samples
from learnloop.decisions.learning.apprentice import match_rate
from learnloop.loop import Workspace
from learnloop.loop.decisions.counterfactual import evaluate_decisions
from learnloop.loop.decisions.importing import DecisionImport, import_decisions
from learnloop.loop.workspace.settings import find_settings


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(find_settings(tmp_path), create=True) as opened:
        yield opened


def line(number: int, **changes: Any) -> str:
    """One of two actions, chosen with 0.8 and 0.2 by turns; the second is the better one."""
    chosen = number % 5 == 0
    found = {
        "_label_cost": -1.0 if chosen else 0.0, "_label_probability": 0.2 if chosen else 0.8,
        "_label_Action": 2 if chosen else 1, "EventId": f"e{number}",
        "Timestamp": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z",
        "a": [2, 1] if chosen else [1, 2], "p": [0.2, 0.8] if chosen else [0.8, 0.2],
        "c": {"x": number, "_multi": [{"_tag": "old", "f": 0}, {"_tag": "new", "f": 1}]}, "VWState": {"m": "m1"},
    }  # fmt: skip
    return json.dumps({name: value for name, value in {**found, **changes}.items() if value is not ...})


def written(folder: Path, *lines: str, name: str = "log.dsjson") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def imported(workspace: Workspace, path: Path, **options: Any) -> DecisionImport:
    return import_decisions(workspace, path, agent="shop", policy="banner", **options)


def test_a_log_can_be_evaluated_and_matched(workspace: Workspace, tmp_path: Path) -> None:
    path = written(tmp_path, *(line(number) for number in range(1_000)))
    found = imported(workspace, path, first_is_baseline=True)
    assert (found.num_decisions, found.num_rewards, found.num_new, found.num_bad_lines) == (1_000, 1_000, 2_000, 0)
    value = {
        each.target: each.estimate.value
        for each in evaluate_decisions(workspace, "shop", "banner", ["uniform", "baseline", "best-fixed"]).targets
        if each.estimate is not None
    }
    assert value["best-fixed"] == pytest.approx(1.0, abs=0.05)
    assert value["baseline"] == pytest.approx(0.0, abs=0.05)
    assert value["uniform"] == pytest.approx(0.5, abs=0.05)
    assert match_rate(workspace.store, "shop", "banner").share == 1.0  # it prefers the first, which is the baseline
    samples = list(logged_samples(workspace.store, "shop", "banner"))
    assert [sample.reward for sample in samples[:6]] == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # in the order of time
    decision = next(iter(workspace.store.iterate(Decision)))
    assert (decision.algorithm, decision.policy_version_id, decision.mode) == ("vw:m1", None, "learning")


def test_a_second_import_changes_nothing_zipped_or_not(workspace: Workspace, tmp_path: Path) -> None:
    lines = [line(number) for number in range(20)] + [line(1, EventId=..., Timestamp=...)]
    path = written(tmp_path, *lines)
    assert imported(workspace, path).num_new == 42
    assert imported(workspace, path).num_new == 0
    zipped = tmp_path / "log.dsjson.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert imported(workspace, zipped).num_new == 0


def test_observations_are_joined_and_those_of_others_counted(workspace: Workspace, tmp_path: Path) -> None:
    late = written(
        tmp_path,
        line(1, _label_cost=..., DeferredAction=True),
        '{"EventId":"e1","v":0.75}',
        '{"EventId":"e1","ActionTaken":true}',
        '{"EventId":"gone","v":1}',
    )
    found = imported(workspace, late)
    assert (found.num_observations, found.num_unmatched, found.num_activated) == (3, 1, 1)
    assert found.num_without_reward == 0
    assert [each.reward for each in logged_samples(workspace.store, "shop", "banner")] == [0.75]
    assert imported(workspace, late).num_new == 0


def test_what_was_skipped_is_not_learned_from(workspace: Workspace, tmp_path: Path) -> None:
    imported(workspace, written(tmp_path, line(1, _skipLearn=True), line(2)))
    assert len(list(logged_samples(workspace.store, "shop", "banner"))) == 1
    assert not list(workspace.store.iterate(DecisionActivation))


def test_pdrop_is_kept_and_changes_no_reward(workspace: Workspace, tmp_path: Path) -> None:
    found = imported(workspace, written(tmp_path, line(5, pdrop=0.9)))
    assert found.num_dropping == 1
    (kept,) = (each for each in workspace.store.iterate(Reward) if each.name == "pdrop")
    assert (kept.value, kept.weight, kept.source) == (0.9, 0.0, "import")
    (sample,) = logged_samples(workspace.store, "shop", "banner")
    assert (sample.reward, sample.propensity) == (1.0, 0.2)


def test_bad_lines_are_named_and_strict_imports_nothing(workspace: Workspace, tmp_path: Path) -> None:
    path = written(tmp_path, line(1), line(2, p=[0.5]), *["{"] * 30)
    with pytest.raises(FormatError, match=r"line 2: p has 1 probabilities for 2 actions; nothing was imported"):
        imported(workspace, path, strict=True)
    assert not list(workspace.store.iterate(Decision))
    found = imported(workspace, path)
    assert (found.num_decisions, found.num_bad_lines, len(found.bad_lines)) == (1, 31, 20)
    assert found.bad_lines[0].line == 2


def test_text_of_both_kinds(workspace: Workspace, tmp_path: Path) -> None:
    cb = imported(workspace, written(tmp_path, "1:-1:0.5 | a", "3:0:0.5 | b", name="cb.vw"))
    adf = imported(
        workspace, written(tmp_path, "shared | s", "0:1:0.5 | a", "| b", "", "| a", "1:0:0.5 | b", name="adf.vw")
    )
    assert (cb.format, cb.num_decisions, adf.num_decisions) == ("vw", 2, 2)
    assert sorted({len(each.actions) for each in workspace.store.iterate(Decision)}) == [2, 3]


def test_files_and_names_that_cannot_be(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        imported(workspace, tmp_path / "none")
    with pytest.raises(FormatError, match="fits no format"):
        imported(workspace, written(tmp_path, "hello"))
    with pytest.raises(FormatError, match="no line can be read"):
        imported(workspace, written(tmp_path, "{"))
    with pytest.raises(UsageError, match="cannot name a policy"):
        import_decisions(workspace, written(tmp_path, line(1)), agent="shop", policy="../x")


def test_damaged_files_import_or_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    plain = written(tmp_path, *(line(number) for number in range(5))).read_bytes()
    chance = random.Random(0)
    for round_number in range(60):
        for kind, whole in (("plain", plain), ("zipped", gzip.compress(plain))):
            raw = bytearray(whole[: chance.randrange(1, len(whole))] if round_number % 2 else whole)
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            path = tmp_path / f"{kind}.log"
            path.write_bytes(raw)
            try:
                imported(workspace, path)
            except LearnloopError as error:
                assert isinstance(error, UsageError), error  # noqa: PT017 - either is right
