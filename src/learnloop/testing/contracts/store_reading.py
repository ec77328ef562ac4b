"""The rules of a store about what is read from it: by key, by page, by condition, and the events of it."""

from __future__ import annotations

import re
import threading
from abc import abstractmethod
from datetime import timedelta
from typing import Any

from learnloop.core.errors import NotFoundError, UsageError
from learnloop.core.records import Agent, Episode, Reward, Span, SpanStatus
from learnloop.store import Store
from learnloop.testing.contracts.contract import Contract, expect, refuses, same
from learnloop.testing.contracts.store_examples import T0, decision, episode, reward, span

MISSED = "whoever reads page by page would miss something, or see it twice"
UNLEARNED = "whoever learns from events would miss some, or learn some twice"


class StoreReadingContract(Contract):
    """The rules about reading; ``StoreContract`` has all."""

    @abstractmethod
    def open_store(self, **options: Any) -> Store:
        """Returns a new, empty store; ``options`` are those of ``Store.open``, such as ``queue_size``."""

    def open_again(self) -> Store | None:
        """Returns the store that ``open_store`` returned last, opened again; None where it went with its closing."""
        return None

    def test_get_names_what_is_missing(self) -> None:
        """``get`` refuses an unknown key in words; find returns None."""
        with self.open_store() as store:
            why = "nothing is not something"
            error = refuses(NotFoundError, "get refuses an unknown key", why, store.get, Episode, "nope")
            says(error, r"Episode.*episode_id.*'nope'")
            same(store.find(Episode, "nope"), None, "find returns None", why)

    def test_pages_by_key(self) -> None:
        """Pages follow each other by key, in both directions, under conditions too."""
        with self.open_store() as store:
            store.write(span(f"s{number:02}", episode_id=f"e{number % 3}") for number in range(25))
            first = store.select(Span, limit=10)
            second = store.select(Span, limit=10, after=first[-1].span_id)
            keys = [found.span_id for found in first + second]
            same(keys, [f"s{number:02}" for number in range(20)], "pages follow each other by key", MISSED)
            last = store.select(Span, limit=2, descending=True, after="s20")[0].span_id
            same(last, "s19", "pages go downwards too", MISSED)
            count = len(list(store.iterate(Span, where={"episode_id": "e0"}, page=4)))
            same(count, 9, "iterate goes over all pages", MISSED)
            same(store.count(Span, where={"episode_id": "e1"}), 8, "count counts under a condition", MISSED)

    def test_keys_are_ordered_by_code_point(self) -> None:
        """The order of keys is that of their code points, whatever the language of the machine."""
        names = ["a", "B", "é", "_", "Z", "0", "\U0001f600", "\uffee"]
        with self.open_store() as store:
            store.write(Agent(agent_id=name, created_at=T0) for name in names)
            found = [agent.agent_id for agent in store.iterate(Agent, page=2)]
        same(found, sorted(names), "keys are ordered by code point", MISSED)

    def test_conditions(self) -> None:
        """Conditions take values, lists of them and None; an unknown field is refused with those that there are."""
        with self.open_store() as store:
            store.write([span("s1", episode_id=None), span("s2"), span("s3", episode_id="e3")])
            store.write([reward("r1", value=0.25), reward("r2", created_at=T0 + timedelta(seconds=1))])

            def ids(**where: object) -> list[str]:
                return [found.span_id for found in store.select(Span, where=where)]

            why = "what was asked for would be left out"
            same(ids(episode_id=None), ["s1"], "None finds what is missing", why)
            same(ids(episode_id=["e1", "e3"]), ["s2", "s3"], "a list finds any of its values", why)
            same(ids(episode_id=("e3", None)), ["s1", "s3"], "a list may hold None", why)
            same(ids(episode_id=[]), [], "an empty list finds nothing", why)
            same(ids(episode_id="e1", name="other"), [], "all conditions must hold", why)
            same(ids(status=SpanStatus.OK, started_at=T0), ["s1", "s2", "s3"], "enums and times are values", why)
            same(store.count(Reward, where={"value": {0.25}}), 1, "a set is a list", why)
            same(store.count(Reward, where={"created_at": [T0]}), 1, "a list may hold times", why)
            error = refuses(UsageError, "an unknown field is refused", why, ids, colour="red")
            says(error, r"'colour'; allowed: .*'oper")
            says(refuses(UsageError, "a limit of 0 is refused", why, store.select, Span, limit=0), "limit")

    def test_a_condition_of_many_values(self) -> None:
        """A list may be longer than the parameters of a statement."""
        with self.open_store() as store:
            store.write(span(f"s{number}", started_at=T0 + timedelta(seconds=number)) for number in range(10))
            why = "databases limit the parameters of a statement"
            many = [f"s{number}" for number in range(70_000)]
            same(store.count(Span, where={"span_id": many}), 10, "a list may have 70,000 texts", why)
            times = [T0 + timedelta(seconds=number) for number in range(600)]
            same(store.count(Span, where={"started_at": times}), 10, "a list may have 600 times", why)

    def test_events_in_order_with_what_they_report(self) -> None:
        """Events are numbered upwards, and hold what happened."""
        with self.open_store() as store:
            store.write([episode(), decision("d1"), reward("r1", decision_id="d1")])
            events = store.events()
            same(len(events), 3, "each of them is an event", UNLEARNED)
            started, made, recorded = events
            numbers = [event.sequence for event in events]
            same(numbers, sorted(set(numbers)), "events are numbered upwards", UNLEARNED)
            same((started.kind, started.subject), ("episode.started", "e1"), "an event names its subject", UNLEARNED)
            found = (made.kind, made.subject, made.payload["action"])
            same(found, ("decision.made", "d1", "gzip"), "a decision's event holds its action", UNLEARNED)
            reported = (recorded.kind, recorded.subject, recorded.payload["value"])
            same(reported, ("reward.recorded", "r1", 0.5), "a reward's event holds its value", UNLEARNED)
            same(store.events(after=made.sequence), [recorded], "events go on after a number", UNLEARNED)
            same(store.events(limit=1), [started], "events have a limit", UNLEARNED)

    def test_waiting_for_events(self) -> None:
        """A wait ends with an event, or after its time."""
        with self.open_store() as store:
            why = "a learner would sleep while there is something to learn"
            same(store.wait_for_events(0, 0.05), False, "without an event a wait ends after its time", why)
            timer = threading.Timer(0.2, lambda: store.write([reward("r1")]))
            timer.start()
            same(store.wait_for_events(0, 10), True, "a wait ends with an event", why)
            timer.join()
            same(store.wait_for_events(0, 0), True, "what is there is not waited for", why)
            last = store.events()[-1].sequence
            same(store.wait_for_events(last, 0.05), False, "events that were seen end no wait", why)

    def test_rewards_in_the_order_of_their_commit(self) -> None:
        """Rewards come in the order in which they became durable, each once."""
        with self.open_store() as store:
            same(store.last_sequence(Reward), 0, "without a reward the last number is 0", UNLEARNED)
            store.write([reward("z"), reward("y")])
            store.write([reward("a"), reward("z", value=9.0)])
            found = store.rewards_after(0)
            same([one.reward_id for _, one in found], ["z", "y", "a"], "rewards come in their order", UNLEARNED)
            first, second, third = (number for number, _ in found)
            is_upwards = 0 < first < second < third == store.last_sequence(Reward)
            expect(is_upwards, "their numbers go upwards to the last", [first, second, third], UNLEARNED)
            same(store.rewards_after(second), [(third, reward("a"))], "rewards go on after a number", UNLEARNED)
            same(store.rewards_after(0, limit=1), [(first, reward("z"))], "rewards have a limit", UNLEARNED)


def kinds(store: Store) -> list[str]:
    """Returns the kinds of all events."""
    return [event.kind for event in store.events()]


def says(error: Exception, pattern: str) -> None:
    """Returns if the message of ``error`` matches ``pattern``.

    Raises:
        ContractError: it does not.
    """
    why = "who reads it must find the fault"
    expect(re.search(pattern, str(error)), f"the error says {pattern!r}", str(error), why)
