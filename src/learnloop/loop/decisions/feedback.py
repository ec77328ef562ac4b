"""What a user says of what was decided: thumbs, an edited text, a rating. The next update learns from it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from learnloop.core.checks import check_choice, check_number
from learnloop.core.errors import UsageError
from learnloop.core.records import Reward
from learnloop.core.rewards import RewardTarget
from learnloop.loop.rewards.recording import record_rewards
from learnloop.loop.workspace.core import WorkspaceCore

SOURCE: Final = "user"
FEEDBACK: Final = "feedback"
"""The name of the part of the reward; the newest one counts, whichever kind it is."""
MAX_EDIT_CHARACTERS: Final = 20_000
MAX_COMMENT_CHARACTERS: Final = 10_000
MAX_AUTHOR_CHARACTERS: Final = 200
_THUMBS: Final = {"up": 1.0, "down": 0.0}


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user made of a text."""

    original: str
    final: str


class Feedback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user says; at least one of thumbs, edit and rating."""

    thumbs: Literal["up", "down"] | None = None
    edit: Edit | None = None
    """Worth how much of the text was kept."""
    rating: float | None = None
    """From 0 to 1."""
    comment: str | None = None
    """Stored as the reason of the reward; not learned from."""
    author: str | None = None
    """Who says so; None: not known."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        if self.thumbs is None and self.edit is None and self.rating is None:
            raise UsageError("the feedback holds neither thumbs, edit nor rating; give at least one of them")
        if self.thumbs is not None:
            check_choice("thumbs", self.thumbs, _THUMBS)
        if self.rating is not None:
            check_number("rating", self.rating, 0, 1)
        if self.edit is not None:
            longest = max(len(self.edit.original), len(self.edit.final))
            if longest > MAX_EDIT_CHARACTERS:
                raise UsageError(f"the edited text has {longest:,} characters; at most {MAX_EDIT_CHARACTERS:,} can be")
        if self.comment is not None and len(self.comment) > MAX_COMMENT_CHARACTERS:
            raise UsageError(
                f"the comment has {len(self.comment):,} characters; at most {MAX_COMMENT_CHARACTERS:,} can be"
            )
        if self.author is not None and not (self.author.strip() and len(self.author) <= MAX_AUTHOR_CHARACTERS):
            raise UsageError(
                f"the author is {self.author[:40]!r}; give a name of 1 to {MAX_AUTHOR_CHARACTERS} characters, or none"
            )


def record_feedback(
    workspace: WorkspaceCore,
    feedback: Feedback,
    *,
    decision_id: str | None = None,
    episode_id: str | None = None,
    key: str | None = None,
) -> list[Reward]:
    """Writes what a user says of a decision or an episode as parts of its reward, and returns them.

    The one that counts is called ``feedback``: the rating where one was given, else what the edit kept, else 1 for
    thumbs up and 0 for thumbs down. The newest replaces those before, whichever kind they were, so that a user who
    first likes and then edits is heard once. Each kind is stored beside it under its own name with weight 0, which is
    not learned from. As any part it adds to parts of other names, and a ``total`` stands for all of them.

    Args:
        workspace: with the log.
        feedback: what the user says.
        decision_id: the decision that it is about.
        episode_id: the episode that it is about, where it is about no single decision.
        key: the same for the same feedback, so that telling it twice stores it once; None: each is a new one.

    Raises:
        NotFoundError: there is no such decision or episode.
        UsageError: both or neither is named.
    """
    kinds = {f"{FEEDBACK}.{kind}": value for kind, value in _values(feedback)}
    return record_rewards(
        workspace,
        RewardTarget(episode_id, decision_id),
        {FEEDBACK: next(iter(kinds.values())), **kinds},
        weights=dict.fromkeys(kinds, 0.0),
        source=SOURCE,
        author=feedback.author,
        reason=feedback.comment,
        key=key,
    )


def kept_share(edit: Edit) -> float:
    """Returns how much of a text a user kept, from 0 (nothing) to 1 (all of it); 1 for two empty texts.

    2 L / (characters of the original + characters of the final text), where L is the length of their longest common
    subsequence: 1 - (deleted + inserted characters) / (all characters), the normalised indel similarity.

    Source: Hyyro 2004, Bit-parallel LCS-length computation revisited, figure 3 (L in one pass over the final text).
    """
    first, second = edit.original, edit.final
    size = len(first) + len(second)
    if first == second:
        return 1.0
    return 2 * _common_length(first, second) / size


def _common_length(first: str, second: str) -> int:
    places: dict[str, int] = {}
    for position, character in enumerate(first):
        places[character] = places.get(character, 0) | 1 << position
    full = (1 << len(first)) - 1
    state = full  # a bit that is 0: one more character of the longest common subsequence
    for character in second:
        matches = state & places.get(character, 0)
        state = ((state + matches) | (state - matches)) & full
    return len(first) - state.bit_count()


def _values(feedback: Feedback) -> list[tuple[str, float]]:
    """Returns what each kind is worth, the one that counts first."""
    found = []
    if feedback.rating is not None:
        found.append(("rating", float(feedback.rating)))
    if feedback.edit is not None:
        found.append(("edit", kept_share(feedback.edit)))
    if feedback.thumbs is not None:
        found.append(("thumbs", _THUMBS[feedback.thumbs]))
    return found
