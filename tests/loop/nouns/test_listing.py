"""Listings: a list, rows, and a table of text; pages with and without another one behind them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from learnloop.core.errors import UsageError
from learnloop.core.records import Reward, Span, SpanStatus
from learnloop.loop import Workspace, find_settings
from learnloop.loop.nouns.listing import Listing, Page, columns
from tests.test_import_cost import measure

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_listing_is_a_list_and_rows() -> None:
    listing = Listing([1, 2], lambda number: {"number": number, "square": number * number})
    assert listing == [1, 2]
    assert listing[-1] == 2
    assert listing.rows() == [{"number": 1, "square": 1}, {"number": 2, "square": 4}]


def test_a_table_shows_text_as_text() -> None:
    listing = Listing(["<b>"], lambda name: {"name": name, "reward": 0.123456, "aliases": ["a", "b"], "none": None})
    table = listing._repr_html_()
    assert "<td>&lt;b&gt;</td><td>0.1235</td><td>a, b</td><td></td>" in table
    assert "<th>name</th><th>reward</th>" in table


def test_a_page_says_how_the_next_one_is_asked_for() -> None:
    row = columns("real")
    assert Page([1], row, "<c>")._repr_html_().endswith("<p>more with after=&#x27;&lt;c&gt;&#x27;</p>")
    assert "more" not in Page([1], row, None)._repr_html_()


def span(number: int, status: SpanStatus) -> Span:
    return Span(
        span_id=f"s{number}",
        trace_id="t",
        episode_id=None,
        parent_id=None,
        operation="execute_tool",
        name="look",
        status=status,
        error=None,
        started_at=START,
        ended_at=START,
    )


def test_columns_are_attributes_as_plain_values() -> None:
    found = columns("span_id", "status", "started_at.year")(span(1, SpanStatus.ERROR))
    assert found == {"span_id": "s1", "status": "error", "year": 2026}
    assert type(found["status"]) is str


@pytest.fixture(params=["sqlite", "postgresql"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    database = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    with Workspace(find_settings(tmp_path / "home", database), create=True) as opened:
        yield opened


def test_spans_are_listed_by_id_and_narrowed(workspace: Workspace) -> None:
    workspace.store.write([span(number, SpanStatus.ERROR if number % 2 else SpanStatus.OK) for number in range(5)])
    first = workspace.spans.list(limit=2)
    assert [row["span_id"] for row in first.rows()] == ["s4", "s3"]
    second = workspace.spans.list(limit=3, after=first.next_cursor)
    assert ([each.span_id for each in second], second.next_cursor) == (["s2", "s1", "s0"], None)
    assert [each.span_id for each in workspace.spans.list(status="error", name="look")] == ["s3", "s1"]
    assert workspace.spans.list(operation="chat") == []
    assert workspace.spans.show("s3").status is SpanStatus.ERROR


def test_rewards_are_listed_in_the_order_of_the_log(workspace: Workspace) -> None:
    """Their ids may be made of a key, which says nothing about time."""
    for key, name in (("z", "a"), ("a", "b"), ("m", "a")):
        workspace.store.write([Reward(reward_id=key, episode_id="e", name=name, value=0.5, created_at=START)])
    first = workspace.rewards.list(limit=2)
    assert [row["reward_id"] for row in first.rows()] == ["m", "a"]
    second = workspace.rewards.list(limit=2, after=first.next_cursor)
    assert ([each.reward_id for each in second], second.next_cursor) == (["z"], None)
    assert [each.reward_id for each in workspace.rewards.list(name="a", episode="e")] == ["m", "z"]
    for wrong in ({"limit": 0}, {"after": "d1"}, {"after": "n0"}, {"after": ""}):
        with pytest.raises(UsageError):
            workspace.rewards.list(**wrong)  # type: ignore[arg-type]


def test_reading_traces_does_not_wait_for_numpy(tmp_path: Path) -> None:
    place = f"{str(tmp_path)!r}"
    made = f"import learnloop as ll; ws = ll.Workspace(ll.loop.find_settings({place}), create=True)"
    _, modules = measure(f"{made}; ws.episodes.list(); ws.spans.list(); ws.close()", repetitions=1)
    assert "numpy" not in modules
