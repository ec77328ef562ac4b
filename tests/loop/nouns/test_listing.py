"""Listings: a list, rows, and a table of text."""

from __future__ import annotations

from learnloop.loop.nouns.listing import Listing, html_table


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


def test_nothing_is_said_so() -> None:
    assert html_table([]) == "<p>nothing yet</p>"
