"""The learned reward of a store: it is learned from labels, kept beside the store, and says what to label next."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from learnloop.core.decoding import convert_record
from learnloop.core.errors import NotFoundError, UsageError, one_of
from learnloop.core.records import LabelRequest
from learnloop.loop.rewards.attempts import attempt_of, stored_episodes
from learnloop.loop.rewards.labelling import labels_of
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.models.embedders import EmbedderConfig, make_embedder
from learnloop.models.vector_cache import CachedEmbedder
from learnloop.rewards.learned.files import load_learned_reward, save_learned_reward
from learnloop.rewards.learned.fitting import fit_learned_reward
from learnloop.rewards.learned.label_queue import LabelQueue
from learnloop.rewards.learned.reward import Labelled, LearnedReward, LearnedRewardConfig
from learnloop.rewards.learned.selection import SelectionConfig, ask_for_labels, select_for_labels
from learnloop.store.queries.labels import unlabelled_episodes

FOLDER = "rewards"
NEWEST = "newest"
MAX_CANDIDATES = 2_000
"""Episodes that a choice of what to label looks at: all, or so many by chance."""


def workspace_embedder(workspace: WorkspaceCore) -> CachedEmbedder:
    """Returns the embedder of ``[embedder]`` in ``learnloop.toml``; the caller closes it.

    Raises:
        UsageError: the settings cannot be used.
        MissingExtraError: the local model needs packages that are not installed.
    """
    hint = f"; allowed keys are {one_of(EmbedderConfig.__struct_fields__)}"
    given = workspace.settings.embedder
    return make_embedder(
        convert_record(given, "[embedder] of learnloop.toml cannot be used", EmbedderConfig, hint=hint)
    )


def learn_reward(workspace: WorkspaceCore, config: LearnedRewardConfig | None = None) -> tuple[LearnedReward, Path]:
    """Learns a reward from all labels of the store, keeps it, and returns it with its folder.

    Whether it may be used, its report says; one that may not is kept too, and gives no scores.

    Raises:
        CheckFailedError: too few labels or tasks.
        MissingExtraError, UsageError: as ``workspace_embedder``.
    """
    with workspace_embedder(workspace) as embedder:
        learned = fit_learned_reward(list(labelled_attempts(workspace)), embedder, config)
        return learned, save_learned_reward(learned, workspace.settings.home / FOLDER)


def open_learned_reward(workspace: WorkspaceCore, name: str, embedder: CachedEmbedder) -> LearnedReward:
    """Returns a learned reward of the store.

    Args:
        workspace: whose.
        name: its content hash, or ``newest``.
        embedder: of the workspace.

    Raises:
        NotFoundError: there is none.
        CorruptError: its files are not what was written.
    """
    folder = workspace.settings.home / FOLDER
    if name == NEWEST:
        found = newest_learned_reward(workspace)
        if found is None:
            raise NotFoundError("no reward was learned yet; run: learnloop labels learn")
        return load_learned_reward(found, embedder)
    if not name.isalnum():
        raise UsageError(f"rewards.learned is {name!r}; give {NEWEST!r} or a content hash")
    return load_learned_reward(folder / name, embedder)


def newest_learned_reward(workspace: WorkspaceCore) -> Path | None:
    """Returns the folder of what was learned last; None: nothing was."""
    folder = workspace.settings.home / FOLDER
    kept = [each for each in folder.glob("*") if each.is_dir() and not each.name.startswith(".")]
    return max(kept, key=lambda each: (each.stat().st_mtime_ns, each.name), default=None)


def labelled_attempts(workspace: WorkspaceCore) -> Iterator[Labelled]:
    """Yields each labelled episode as an attempt with what people say of it."""
    values = labels_of(workspace)
    for episode in stored_episodes(workspace, sorted(values)):
        yield Labelled(attempt_of(workspace, episode, is_graded=False), values[episode.episode_id])


def fill_label_queue(
    workspace: WorkspaceCore, number: int, *, agent: str | None = None, seed: int = 0
) -> list[LabelRequest]:
    """Opens requests for the episodes whose labels would teach most, with suggestions, and returns them.

    Without a learned reward those are chosen that are unlike each other and all that is labelled.

    Args:
        workspace: whose.
        number: how many at the most.
        agent: only this agent's; None: all.
        seed: of what is chosen by chance.
    """
    ids = workspace.store.read(unlabelled_episodes, agent)
    if len(ids) > MAX_CANDIDATES:
        ids = sorted(random.Random(seed).sample(ids, MAX_CANDIDATES))
    candidates = [attempt_of(workspace, each, is_graded=False) for each in stored_episodes(workspace, ids)]
    with workspace_embedder(workspace) as embedder:
        model = None
        if newest_learned_reward(workspace) is not None:
            model = open_learned_reward(workspace, NEWEST, embedder)
        labelled = [each.attempt for each in labelled_attempts(workspace)]
        chosen = select_for_labels(candidates, labelled, number, embedder, model, SelectionConfig(seed=seed))
    return ask_for_labels(LabelQueue(workspace.store), candidates, chosen, model)
