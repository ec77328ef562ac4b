"""The protocol of ``Idempotency-Key`` over answers that are kept in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from learnloop.serve.http.calls import call_of
from learnloop.serve.http.json_bodies import answer, read_json
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import Problem
from learnloop.serve.http.site import KeptAnswer
from tests.serve.running import Start

counted = Operations("counted")
effects: list[str | None] = []


@counted.post("/counted", scope=None, idempotent=True)
async def count(request: Request) -> Response:
    """Answer with the status that the body says."""
    effects.append(call_of(request.scope).effect_id)
    status = await read_json(request, int)
    if status == 0:
        raise ValueError("the secret inside")
    await asyncio.sleep(0.05)
    return answer(len(effects), status)


class Mine:
    """A claim of the application's own."""

    def __init__(self, answer_id: str) -> None:
        self.answer_id = answer_id
        self.effect_id = f"effect of {answer_id[:8]}"


class InMemory:
    """Keeps answers as long as it lives."""

    def __init__(self) -> None:
        self.kept: dict[str, KeptAnswer] = {}
        self.is_failing = False

    async def claim(self, answer_id: str, fingerprint: str) -> Mine | KeptAnswer:
        if answer_id in self.kept:
            return self.kept[answer_id]
        self.kept[answer_id] = KeptAnswer(fingerprint, None, "", b"")
        return Mine(answer_id)

    async def keep(self, claim: Any, status: int, media_type: str, body: bytes) -> None:
        if self.is_failing:
            raise Problem(503, "the disk is full")
        self.kept[claim.answer_id] = self.kept[claim.answer_id]._replace(
            status=status, media_type=media_type, body=body
        )

    async def release(self, claim: Any) -> None:
        del self.kept[claim.answer_id]


@pytest.fixture
def answers() -> InMemory:
    effects.clear()
    return InMemory()


def test_the_same_request_runs_once(start: Start, answers: InMemory) -> None:
    server = start(counted, answers=answers)
    first = server.ask("POST", "/counted", "201", idempotency_key="k")
    again = server.ask("POST", "/counted", "201", idempotency_key="k")
    assert (first.status, first.json()) == (again.status, again.json()) == (201, 1)
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert again.headers["content-type"] == first.headers["content-type"]
    assert server.ask("POST", "/counted", "201").json() == 2
    assert effects == [f"effect of {next(iter(answers.kept))[:8]}", None]
    other = server.ask("POST", "/counted", "202", idempotency_key="k")
    assert (other.status, other.json()["type"]) == (422, "urn:tiny:idempotency-key-reused")


@pytest.mark.parametrize(("status", "is_kept"), [(200, True), (404, True), (408, False), (429, False), (500, False)])
def test_which_answers_are_kept(start: Start, answers: InMemory, status: int, is_kept: bool) -> None:
    server = start(counted, answers=answers)
    assert server.ask("POST", "/counted", str(status), idempotency_key="k").status == status
    assert (len(answers.kept) == 1) is is_kept


def test_a_bug_gives_up_its_claim(start: Start, answers: InMemory) -> None:
    assert start(counted, answers=answers).ask("POST", "/counted", "0", idempotency_key="k").status == 500
    assert answers.kept == {}


def test_what_runs_still_is_a_conflict(start: Start, answers: InMemory) -> None:
    server = start(counted, answers=answers)
    answers.is_failing = True
    assert server.ask("POST", "/counted", "200", idempotency_key="k").status == 200  # done, and its claim stays
    second = server.ask("POST", "/counted", "200", idempotency_key="k")
    assert (second.status, second.json()["type"]) == (409, "urn:tiny:idempotency-key-in-use")
    assert len(effects) == 1


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\t"])
def test_what_is_not_a_key(start: Start, answers: InMemory, key: str) -> None:
    reply = start(counted, answers=answers).ask("POST", "/counted", "200", idempotency_key=key)
    assert (reply.status, reply.json()["type"]) == (400, "urn:tiny:idempotency-key")
    assert effects == []


def test_an_application_without_answers_is_a_fault_of_its_own(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    assert start(counted).ask("POST", "/counted", "200", idempotency_key="k").status == 500
    assert "give Site(answers=...)" in caplog.text
