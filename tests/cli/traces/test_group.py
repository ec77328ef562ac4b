"""The commands about traces: what they print, what they ask, and what they change."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from learnloop.core.clock import now
from learnloop.core.records import Episode, EpisodeStatus, SpanStatus
from learnloop.loop import Loop, Workspace, find_settings
from learnloop.testing.contracts.store_examples import T0, episode, reward, span
from tests.cli.calling import Call
from tests.signals import heed_interrupts
from tests.waiting import PATIENCE_SECONDS

GOAL = {"timestamp": "2026-01-01T10:00:01Z", "goal": "g", "action": "ls", "result": {"success": True}}
EVIL = "line\nbreak \x1b[31mred\x1b[0m \u202e"


@pytest.fixture
def call(call: Call) -> Call:
    """Runs a command about traces in an empty folder."""
    return lambda *arguments: call("traces", *arguments)


@pytest.fixture
def filled(call: Call) -> Call:
    """Two episodes: one of three spans with a failed tool and tokens, one that runs."""
    message = [{"role": "user", "parts": [{"type": "text", "content": f"refund order 17 {EVIL}"}]}]
    output = [{"role": "assistant", "parts": [{"type": "text", "content": "I look"},
              {"type": "tool_call", "id": "c", "name": "search", "arguments": {"q": "17"}}]}]  # fmt: skip
    said = {"input": message, "output": output, "usage": {"input_tokens": 1200, "output_tokens": 3}}
    with Workspace(find_settings(), create=True) as workspace:
        workspace.store.write(
            [
                episode("abc-1", EpisodeStatus.COMPLETED, ended_at=T0),
                episode("abd-2", agent_id="other", task_id=None),
                span("root", episode_id="abc-1", operation="invoke_agent", name="bot"),
                span("model", episode_id="abc-1", parent_id="root", name="gpt", attributes=said),
                span("tool", episode_id="abc-1", parent_id="root", operation="execute_tool", name="search", error=EVIL,
                     status=SpanStatus.ERROR, attributes={"call_id": "c", "input": {"q": "17"}}),
                reward("r", episode_id="abc-1", decision_id=None, value=0.75),
            ]
        )  # fmt: skip
    return call


def test_show_a_tree_the_steps_and_all(filled: Call) -> None:
    tree = filled("show", "abc", "--tree")
    assert tree.out.splitlines()[:2] == ["invoke_agent bot  3.0 ms", "  chat gpt  3.0 ms  1,200 in / 3 out tokens"]
    assert "execute_tool search  3.0 ms  line\\x0abreak \\x1b[31mred" in tree.out
    assert "\x1b" not in tree.out
    skeleton = filled("show", "abc", "--tree", "--json").json()
    assert skeleton["schema"] == "learnloop.skeleton/v1"
    assert [each["span_id"] for each in skeleton["spans"]] == ["model", "root", "tool"]
    assert all("attributes" not in each for each in skeleton["spans"])
    assert skeleton["usage"] == {"model": {"input_tokens": 1200, "output_tokens": 3}}
    steps = filled("show", "abc", "--steps").out.splitlines()
    assert steps[0] == "1. gpt"
    assert steps[1].startswith("   user: refund order 17 line break \\x1b")
    assert steps[2:4] == ["   assistant: I look", '   -> search({"q":"17"})']
    assert steps[4].startswith("   <- failed: line break")
    found = filled("show", "abc", "--steps", "--json").json()
    assert (found["schema"], found["steps"][0]["tool_calls"][0]["name"]) == ("learnloop.steps/v1", "search")
    whole = filled("show", "abc-1").out
    assert "reward saved: 0.75 x 1 from" in whole
    assert filled("show", "abc", "--tree", "--steps").code == 2
    assert filled("show", "ab").code == 2
    assert "give more of it" in filled("show", "ab").err
    assert filled("show", "x").code == 3


def test_a_list_is_narrowed_and_searched(filled: Call) -> None:
    def ids(*options: str) -> list[str]:
        return [row["episode"]["episode_id"] for row in filled("list", "--json", *options).json()["data"]]

    assert ids() == ["abd-2", "abc-1"]
    assert ids("--reward-above", "0.5") == ["abc-1"]
    assert ids("--reward-below", "0.5") == []
    assert ids("--source", "loop", "--agent", "other") == ["abd-2"]
    assert ids("--since", "2026-01-03") == []
    assert ids("--until", "2026-01-03", "--status", "running") == ["abd-2"]
    assert ids("--search", 'refund "order 17"') == ["abc-1"]
    assert ids("--search", "nothing") == []
    text = filled("list", "--search", "REFUND ord*").out.splitlines()
    assert text[0] == "abc-1  packer  pack:readme  completed  0.7500"
    assert text[1].startswith("  «refund» «order» 17 line break \\x1b[31mred")
    nothing = filled("list", "--search", "nothing")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "nothing found\n")
    for wrong in (("--since", "soon"), ("--until", "1y"), ("--reward-above", "much")):
        assert filled("list", *wrong).code == 2


def test_a_search_has_pages(call: Call) -> None:
    with Workspace(find_settings(), create=True) as workspace:
        for number in range(5):
            key = f"e{number}"
            workspace.store.write([episode(key), span(f"s{number}", episode_id=key, attributes={"input": "word"})])
    seen: list[str] = []
    cursor: list[str] = []
    while True:
        page = call("list", "--search", "word", "--limit", "2", "--json", *cursor).json()
        seen += [row["episode"]["episode_id"] for row in page["data"]]
        assert all(row["snippet"]["marks"] == [[0, 4]] for row in page["data"])
        if page["next_cursor"] is None:
            break
        cursor = ["--after", page["next_cursor"]]
    assert seen == ["e4", "e3", "e2", "e1", "e0"]


def test_a_label_shows_up_as_reward(filled: Call) -> None:
    given = filled("label", "abc", "bad", "--note", "too slow", "--json").json()
    assert (given["schema"], given["reward"]["value"], given["reward"]["reason"]) == (
        "learnloop.reward/v1",
        0.0,
        "too slow",
    )
    assert filled("label", "abc", "0.25", "--name", "style", "--author", "ada").out == "episode abc-1: style = 0.25\n"
    assert filled("label", "abc", "good", "--span", "model").out == "span model: label = 1\n"
    assert filled("list", "--agent", "packer", "--json").json()["data"][0]["reward"] == 0.0  # whatever its file told
    assert "reward label: 0 x 1 from label: too slow" in filled("show", "abc").out
    assert filled("label", "abc", "0.5", "--author", "ada", "--json").json()["reward"]["author"] == "ada"
    assert filled("label", "abc", "great").code == 2
    assert filled("label", "abc", "good", "--span", "x").code == 3
    assert filled("label", "x", "good").code == 3


def test_stats_in_words_and_in_json(filled: Call) -> None:
    words = filled("stats").out
    assert "2 episodes (1 completed, 1 running), 3 spans, 1 steps" in words
    assert "tokens: 1,200 input, 3 output; unknown for 0 of 1 calls (0.0%)" in words
    assert "reward: mean 0.7500 of 1 episodes; unknown for 1" in words
    assert "search  1      1       100.0%" in words
    found = filled("stats", "--agent", "other", "--json").json()
    assert (found["schema"], found["num_episodes"], found["rewards"]["mean"]) == ("learnloop.stats/v1", 1, None)
    assert filled("stats", "--agent", "nobody").code == 0


def test_redact_says_what_it_did(call: Call, tmp_path: Path) -> None:
    (tmp_path / "learnloop.toml").write_text("[redaction]\nkinds = []\n")
    with Loop("bot") as loop, loop.episode(), loop.span("call", query="eve@example.org ORD-1234"):
        pass
    (tmp_path / "learnloop.toml").write_text("")
    dry = call("redact", "--all", "--dry-run")
    assert dry.out == "3 records looked through, 1 spans would change: 1 x [email]\n"
    assert "eve@example.org" in call("export", "-").out
    done = call("redact", "--agent", "bot", "--pattern", "order=ORD-[0-9]{4}", "--json").json()
    assert (done["schema"], done["dry_run"], done["result"]["num_changed"]) == (
        "learnloop.redaction/v1",
        False,
        {"span": 1},
    )
    assert done["result"]["num_found"] == {"[email]": 1, "[order]": 1}
    assert "eve@example.org" not in call("export", "-").out
    for wrong in (
        (),
        ("--all", "x"),
        ("--all", "--agent", "a"),
        ("--all", "--pattern", "x"),
        ("--all", "--pattern", "x=("),
    ):
        assert call("redact", *wrong).code == 2, wrong


def test_removing_by_age_is_of_one_moment(filled: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def confirm(planned: object) -> None:
        with Workspace(find_settings()) as workspace:  # meanwhile another one ends
            workspace.store.write([episode("late", EpisodeStatus.COMPLETED, ended_at=now())])

    monkeypatch.setattr("learnloop.cli.traces.changes._confirm", confirm)
    assert filled("rm", "--older-than", "0m").out.startswith("1 episodes")
    assert filled("show", "late").code == 0


def test_a_store_is_not_among_the_files_that_it_imports(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEARNLOOP_HOME", str(tmp_path / "store"))
    (tmp_path / "x.txt").write_text(json.dumps({"EventId": "e"}))
    found = call("import", ".")
    assert "learnloop.db" not in found.err
    assert "x.txt has the fields 'EventId'" in found.err


def test_removing_needs_a_yes(filled: Call) -> None:
    asked = filled("rm", "abc")
    assert (asked.code, asked.out) == (2, "")
    assert "1 episodes, 3 spans, 0 decisions, 1 rewards would be removed for good; say --yes" in asked.err
    dry = filled("rm", "abc", "--dry-run")
    assert dry.out == "1 episodes, 3 spans, 0 decisions, 1 rewards would be removed\n"
    assert filled("rm", "--older-than", "1d", "--dry-run", "--json").json()["removed"]["num_episodes"] == 1
    assert filled("rm", "--older-than", "1d", "--agent", "other", "--yes").out.startswith("0 episodes")
    done = filled("rm", "abc", "--yes", "--json").json()
    assert (done["schema"], done["removed"]["num_spans"]) == ("learnloop.removal/v1", 3)
    assert filled("show", "abc").code == 3
    assert filled("rm", "abd", "--yes").out.startswith("1 episodes")  # it runs, and was named
    for wrong in ((), ("x", "--expired"), ("x", "--agent", "a"), ("--older-than", "old"), ("--expired",)):
        assert filled("rm", *wrong, "--yes").code == 2, wrong
    assert filled("rm", "x", "--yes").code == 3


@pytest.mark.parametrize(("answer", "num_left"), [(b"y\n", 0), (b"n\n", 1)])
def test_removing_asks_on_a_terminal(call: Call, tmp_path: Path, answer: bytes, num_left: int) -> None:
    with Workspace(find_settings(), create=True) as workspace:
        workspace.store.write([episode("e1")])
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "learnloop", "traces", "rm", "e1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
    )
    os.close(theirs)
    read = b""
    while b"Remove 1 episodes" not in read and select.select([ours], [], [], PATIENCE_SECONDS)[0]:
        read += os.read(ours, 1000)
    os.write(ours, answer)
    assert child.wait(PATIENCE_SECONDS) in (0, 130)
    os.close(ours)
    with Workspace(find_settings()) as workspace:
        assert workspace.store.count(Episode) == num_left


def test_import_of_folders_says_what_is_missing(call: Call, tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "g.jsonl").write_text("\n".join(json.dumps({**GOAL, "goal": f"g{n}"}) for n in range(3)))
    (tmp_path / "in" / "notes.md").write_text("words")
    outcome = call("import", "in", "--agent", "shell")
    assert outcome.code == 0
    assert outcome.out.splitlines()[0].startswith("goal: 3 lines, 3 episodes, 3 rewards, 3 spans; 9 records are new")
    assert "3 steps; 3 of 3 episodes have an outcome" in outcome.out
    assert "3 groups of attempts, 0 with several" in outcome.out
    assert outcome.err == "of no known format: in/notes.md\n"
    found = call("import", "in", "--agent", "shell", "--json").json()
    assert (found["schema"], found["report"]["num_new"], len(found["files"]), len(found["left"])) == (
        "learnloop.import/v1", 0, 1, 1
    )  # fmt: skip
    (tmp_path / "in" / "cut.jsonl").write_text('{"schema": "learnloop.records/v1"}\n{"type": "episode", "episode_id"')
    assert call("import", "in/notes.md").code == 2
    assert call("import", "in", "nothing").code == 3
    assert call("import").code == 2


def test_exports_of_other_formats(filled: Call, tmp_path: Path) -> None:
    assert filled("export", "atif", "--format", "atif", "--json").json()["num_files"] == 2
    assert len(list((tmp_path / "atif").glob("*.json"))) == 2
    assert filled("export", "-", "--format", "atif").out.count("\n") == 2
    assert filled("export", "rl", "--format", "execution-trace").err == "2 files\n"
    assert len(list((tmp_path / "rl").glob("2026-01-02/*.json"))) == 2
    assert filled("export", "-", "--format", "execution-trace").code == 2
    assert filled("export", "x", "--format", "otlp").code == 2


def test_tail_follows_until_ctrl_c(filled: Call, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "learnloop", "traces", "tail", "--json", "--last", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, preexec_fn=heed_interrupts
    ) as child:
        assert child.stdout is not None
        lines = [json.loads(child.stdout.readline()) for _ in range(2)]
        with Workspace(find_settings()) as workspace:
            workspace.store.write([episode("new")])
        lines.append(json.loads(child.stdout.readline()))
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=PATIENCE_SECONDS)
    assert [(line["kind"], line["episode_id"]) for line in lines][2] == ("episode.started", "new")
    assert all(line["schema"] == "learnloop.happening/v1" for line in lines)
    assert (child.returncode, "Traceback" in err) == (130, False)
