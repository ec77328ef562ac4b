"""learnloop decisions: the log and the policies of the decision service."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.calling import Call

_WHICH = ("--agent", "shop", "--policy", "banner")


def _log(folder: Path, number: int = 3) -> str:
    lines = [
        {
            "_label_cost": -1.0, "_label_probability": 0.5, "_label_Action": 1, "EventId": f"e{at}",
            "Timestamp": f"2026-01-01T00:00:0{at}Z", "a": [1, 2], "p": [0.5, 0.5], "_skipLearn": at == 0,
            "c": {"x": at, "_multi": [{"_tag": "old"}, {"_tag": "new"}]},
        }
        for at in range(number)
    ]  # fmt: skip
    path = folder / "log.dsjson"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    return path.name


def test_a_log_is_imported_listed_rewarded_and_shown(call: Call, tmp_path: Path) -> None:
    found = call("decisions", "import", _log(tmp_path), *_WHICH, "--json").json()
    assert found["schema"] == "learnloop.decision-import/v1"
    assert (found["files"][0]["num_decisions"], found["files"][0]["num_new"]) == (3, 6)
    again = call("decisions", "import", "log.dsjson", *_WHICH)
    assert "0 records are new" in again.out
    assert "1 decisions count only once they are activated" in again.err
    page = call("decisions", "list", *_WHICH, "--limit", "2", "--json").json()
    rest = call("decisions", "list", "--limit", "2", "--after", page["next_cursor"], "--json").json()
    ids = [each["decision_id"] for each in [*page["data"], *rest["data"]]]
    assert (len(set(ids)), rest["next_cursor"]) == (3, None)
    assert call("decisions", "reward", ids[0], "click=0.5", "minutes=-2").code == 0
    shown = call("decisions", "show", ids[0], "--json").json()
    assert shown["reward"] == 1.0 + 0.5 - 2.0
    assert call("decisions", "activate", ids[2]).code == 0
    assert call("decisions", "show", ids[2], "--json").json()["activated_at"] is not None
    assert "deferred; activated" in call("decisions", "show", ids[2]).out


def test_settings_are_shown_changed_and_kept_in_versions(call: Call, tmp_path: Path) -> None:
    assert call("init").code == 0
    first = call("decisions", "settings", "shop", "banner", "--json").json()
    assert (first["version"], first["settings"]["mode"]) == (0, "learning")
    how = ("--set", "mode=apprentice", "--set", "exploration.epsilon=0.25", "--author", "ada", "--json")
    second = call("decisions", "settings", "shop", "banner", *how).json()
    assert (second["version"], second["settings"]["exploration"]["epsilon"]) == (1, 0.25)
    late = call("decisions", "settings", "shop", "banner", "--set", "mode=frozen", "--version", "0")
    assert (late.code, "at version 1, not 0" in late.err) == (5, True)
    (tmp_path / "all.json").write_text('{"mode": "frozen"}', encoding="utf-8")
    assert call("decisions", "settings", "shop", "banner", "--file", "all.json", "--json").json()["version"] == 2
    history = call("decisions", "settings", "shop", "banner", "--history", "--json").json()["data"]
    assert [(each["version"], each["author"]) for each in history] == [(2, None), (1, "ada")]


def test_what_cannot_be_is_told_in_words(call: Call, tmp_path: Path) -> None:
    assert call("init").code == 0
    (tmp_path / "bad.json").write_text("[", encoding="utf-8")
    wrong = {
        ("import", "none.json", *_WHICH): 3,
        ("show", "none"): 3,
        ("reward", "none", "1"): 3,
        ("activate", "none"): 3,
        ("reward", "none", "a=b"): 2,
        ("reward", "none", "a=1", "a=2"): 2,
        ("reward", "none", "default=1"): 2,
        ("settings", "a", "b", "--version", "1"): 2,
        ("settings", "a", "b", "--set", "mode"): 2,
        ("settings", "a", "b", "--set", "mode=x"): 2,
        ("settings", "a", "b", "--set", "mode.x=1"): 2,
        ("settings", "a", "b", "--set", "unknown=1"): 2,
        ("settings", "a", "b", "--set", "champion_test.alpha=0"): 2,
        ("settings", "a", "b", "--set", "champion_test.reward_range=[1, 1]"): 2,
        ("settings", "a", "b", "--file", "bad.json"): 2,
        ("settings", "../a", "b", "--set", "mode=frozen"): 2,
        ("evaluate", "a", "b"): 3,
        ("evaluate", "a", "b", "--target", "x"): 2,
        ("list", "--after", "x"): 2,
    }
    for words, code in wrong.items():
        found = call("decisions", *words)
        assert found.code == code, (words, found.err)
        assert "Traceback" not in found.err


def test_evaluation_match_rate_and_updates(call: Call, tmp_path: Path) -> None:
    assert call("decisions", "import", _log(tmp_path), *_WHICH, "--first-is-baseline").code == 0
    found = call("decisions", "evaluate", "shop", "banner", "--target", "uniform", "--json").json()
    assert found["report"]["num_rewarded"] == 2  # the deferred one does not count
    assert found["report"]["targets"][0]["target"] == "uniform"
    assert call("decisions", "evaluate", "shop", "banner").code == 0
    assert call("decisions", "match-rate", "shop", "banner", "--json").json()["report"]["num_decisions"] == 0  # ties
    assert "no decision" in call("decisions", "match-rate", "shop", "banner").err
    assert call("decisions", "updates", "shop", "banner", "--json").json()["data"] == []
    assert call("decisions", "champion-tests", "shop", "banner", "--json").json()["data"] == []
    assert "no version was tested" in call("decisions", "champion-tests", "shop", "banner").err
