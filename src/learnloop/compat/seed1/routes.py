"""Seed 1's endpoints at the root: choose a prompt mutation, take experiences, learn, save and load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope as HttpScope

from learnloop.compat.seed1.batching import SelectionBatcher
from learnloop.compat.seed1.learner import AGENT, MutationLearner, TrainingStats, UpdateFigures
from learnloop.compat.seed1.settings import MUTATIONS, read_mutation_settings
from learnloop.compat.seed1.transition_buffer import SentTransition
from learnloop.compat.seed1.update_process import UpdateProcess
from learnloop.core.errors import ConflictError, CorruptError, DivergedError, NotFoundError, UnreachableError
from learnloop.core.records import Agent, ApiScope
from learnloop.serve.durable_log import DurableLog
from learnloop.serve.http.calls import call_of, problem_body
from learnloop.serve.http.json_bodies import answer, read_json
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import PROBLEM_TYPE, Problem
from learnloop.serve.routes.decisions import Vector, read_vector
from learnloop.serve.service import Service, service_of

CHECKPOINT = "checkpoint"
"""What ``/save`` calls a checkpoint that the client gives no name."""
MAX_ID = 200
_NO_FILE = "file-not-found"


class EmbeddingBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An embedding."""

    embedding: Vector


class SelectionBody(EmbeddingBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a mutation is chosen for."""

    deterministic: bool = False
    """The most likely mutation instead of one that is drawn."""


class SelectedBody(msgspec.Struct, frozen=True, kw_only=True):
    """The choice, which is in the log by now."""

    action: int
    mutation_type: str
    log_prob: float
    value: float


class ExperienceBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came of a choice."""

    state: Vector
    action: int
    reward: float
    next_state: Vector
    done: bool
    """The episode is over."""
    log_prob: float
    """As ``/select_action`` answered it."""
    value: float
    """As ``/select_action`` answered it."""
    truncated: bool = False
    """The episode is over because it was cut, such as by a limit of steps: what would have come is worth the value of
    ``next_state``."""
    episode_id: str | None = None
    """Which of the client's episodes. Without it, and without a key, each experience is an episode of one step."""


class StoredBody(msgspec.Struct, frozen=True, kw_only=True):
    """The experience waits to be learned from."""

    buffer_size: int
    stored: bool = True


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty object."""


class NothingYet(msgspec.Struct, frozen=True):
    """Why there is nothing."""

    message: str


class DistributionBody(msgspec.Struct, frozen=True, kw_only=True):
    """The probability of each mutation."""

    probabilities: list[float]
    mutation_types: list[str]


class SaveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to save."""

    path: str = CHECKPOINT
    """A name, such as ``checkpoint.pt``; no folders."""


class LoadBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to load."""

    path: str
    """The name that it was saved under."""


class SavedBody(msgspec.Struct, frozen=True):
    """It is on the disk."""

    saved: bool = True


class LoadedBody(msgspec.Struct, frozen=True):
    """It is in use."""

    loaded: bool = True


def _error_body(scope: HttpScope, problem: Problem) -> tuple[bytes, str]:
    """Returns a problem that also says in a few words, as seed 1's clients read it, what is wrong: ``error``."""
    body = problem_body(scope, problem)
    error = problem.detail
    if problem.kind == _NO_FILE:
        error = "File not found"
    elif problem.status == 400:
        error = "Invalid JSON"
    elif problem.errors:
        error = "; ".join(f"{each.pointer}: {each.detail}" for each in problem.errors)
    return msgspec.json.encode({**msgspec.to_builtins(body), "error": error}), PROBLEM_TYPE


class _Turn(asyncio.Lock):
    """Where updates wait for their turn, and hold no thread."""


@asynccontextmanager
async def _mutating(service: Service) -> AsyncIterator[None]:
    """Gives ``service`` the learner, as long as the server lives; what was not saved ends with it."""
    settings = service.workspace.settings
    process = UpdateProcess()
    chosen = read_mutation_settings(settings.mutations)
    service.add(_Turn())
    learner = await asyncio.to_thread(MutationLearner, chosen, settings.home / "checkpoints", process.learn)
    service.add(learner)
    service.add(SelectionBatcher(learner, service.part(DurableLog)))
    try:
        yield
    finally:
        await service.call(process.close)


operations = Operations("mutations", error_body=_error_body, error_media=(PROBLEM_TYPE,), lifespan=_mutating)


@operations.get("/stats", scope=ApiScope.READ, response=TrainingStats | NothingYet)
async def get_training_stats(request: Request) -> Response:
    """Show what came and was learned so far: averages over the last 100 episodes and updates."""
    stats = service_of(request).part(MutationLearner).stats()
    return answer(NothingYet("No training data yet") if stats is None else stats)


@operations.post("/select_action", scope=ApiScope.ACT, request=SelectionBody, response=SelectedBody)
async def select_mutation(request: Request) -> Response:
    """Choose a mutation for an embedding; it is in the log, with its probability, before it is answered."""
    service = service_of(request)
    body = await read_json(request, SelectionBody)
    embedding = read_vector("embedding", body.embedding)
    selection = await service.part(SelectionBatcher).select(embedding, deterministic=body.deterministic)
    return answer(
        SelectedBody(
            action=selection.action,
            mutation_type=MUTATIONS[selection.action],
            log_prob=selection.log_prob,
            value=selection.value,
        )
    )


@operations.post("/store_experience", scope=ApiScope.ACT, request=ExperienceBody, response=StoredBody)
async def store_experience(request: Request) -> Response:
    """Take what came of a choice, to learn from it at the next update; 429 while there is no room."""
    body = await read_json(request, ExperienceBody)
    if body.episode_id is not None and not 1 <= len(body.episode_id) <= MAX_ID:
        raise Problem(422, f"episode_id has {len(body.episode_id)} characters; allowed are 1 to {MAX_ID}")
    caller = call_of(request.scope).caller
    transition = SentTransition(
        observation=read_vector("state", body.state),
        action=body.action,
        reward=body.reward,
        next_observation=read_vector("next_state", body.next_state),
        terminated=body.done and not body.truncated,
        truncated=body.truncated,
        log_prob=body.log_prob,
        value=body.value,
        client=None if caller is None else caller.caller_id,
        episode_id=body.episode_id,
    )
    try:
        size = service_of(request).part(MutationLearner).store(transition)
    except ConflictError as error:
        raise Problem(429, str(error), kind="buffer-full") from error
    return answer(StoredBody(buffer_size=size))


@operations.post("/update", scope=ApiScope.TRAIN, request=Nothing, response=UpdateFigures | NothingYet)
async def update_mutations(request: Request) -> Response:
    """Learn from all experiences that wait; choices go on meanwhile. A second update waits for the first one."""
    service = service_of(request)
    learner = service.part(MutationLearner)
    await read_json(request, Nothing)
    if not learner.has_enough:
        return answer(NothingYet("Not enough experiences"))
    try:
        async with service.part(_Turn):
            updated = await service.call(learner.update)
    except DivergedError as error:
        raise Problem(409, f"{error}; the experiences wait still: load a checkpoint", kind="diverged") from error
    except UnreachableError as error:
        raise Problem(503, f"{error}; the experiences wait still", kind="unreachable") from error
    if updated is None:
        return answer(NothingYet("Not enough experiences"))
    await service.part(DurableLog).keep([Agent(agent_id=AGENT, created_at=updated.record.started_at), updated.record])
    return answer(updated.figures)


@operations.post("/get_distribution", scope=ApiScope.ACT, request=EmbeddingBody, response=DistributionBody)
async def get_mutation_distribution(request: Request) -> Response:
    """Show the probability of each mutation for an embedding."""
    body = await read_json(request, EmbeddingBody)
    learner = service_of(request).part(MutationLearner)
    probabilities = learner.distribution(read_vector("embedding", body.embedding))
    return answer(DistributionBody(probabilities=probabilities, mutation_types=list(MUTATIONS)))


@operations.post("/save", scope=ApiScope.TRAIN, request=SaveBody, response=SavedBody)
async def save_mutations(request: Request) -> Response:
    """Save all of the learner under a name in the data folder."""
    service = service_of(request)
    body = await read_json(request, SaveBody)
    await service.call(service.part(MutationLearner).save, body.path)
    return answer(SavedBody())


@operations.post("/load", scope=ApiScope.TRAIN, request=LoadBody, response=LoadedBody)
async def load_mutations(request: Request) -> Response:
    """Go on from what was saved under a name; what cannot be used changes nothing."""
    service = service_of(request)
    body = await read_json(request, LoadBody)
    try:
        await service.call(service.part(MutationLearner).load, body.path)
    except NotFoundError as error:
        raise Problem(404, str(error), kind=_NO_FILE) from error
    except CorruptError as error:
        raise Problem(422, str(error), kind="corrupt") from error
    return answer(LoadedBody())
