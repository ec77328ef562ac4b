"""Lets an environment's texts be seen through an encoder that was added by name."""

from __future__ import annotations

from typing import Any

import gymnasium

from learnloop.core.errors import UsageError
from learnloop.envs.spaces import EncodedText, Space
from learnloop.nn.encoders.text_encoders import HASHED, find_encoder

TEXT_ENCODER = "text_encoder"
"""Under this name among its arguments an environment is told an encoder; the environment itself does not see it."""


class TextView(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The same environment, whose space of observations names the encoder of its texts."""

    def __init__(self, env: gymnasium.Env[Any, Any], encoder: str) -> None:
        super().__init__(env)
        self.observation_space = _encoded(env.observation_space, encoder)


def with_text_encoder(env: gymnasium.Env[Any, Any], encoder: str, label: str) -> gymnasium.Env[Any, Any]:
    """Returns ``env``, called ``label``, with its texts seen through ``encoder``; those of ``EncodedText`` stay.

    Raises:
        UsageError: it shows no text.
        NotFoundError: there is no such encoder; the nearest names are said.
        ExtensionError: the encoder cannot be used.
    """
    if not isinstance(encoder, str):
        raise UsageError(f"{TEXT_ENCODER} is {encoder!r}; the name of an encoder is needed")
    if not _has_text(env.observation_space):
        raise UsageError(f"{label} shows no text, so that no encoder can see it; leave {TEXT_ENCODER} out")
    if encoder == HASHED:
        return env
    find_encoder(encoder)
    return TextView(env, encoder)


def _has_text(space: Space) -> bool:
    return isinstance(space, gymnasium.spaces.Text) or any(_has_text(each) for each in _parts(space))


def _parts(space: Space) -> list[Space]:
    if isinstance(space, gymnasium.spaces.Dict):
        return list(space.spaces.values())
    return list(space.spaces) if isinstance(space, gymnasium.spaces.Tuple) else []


def _encoded(space: Space, encoder: str) -> Space:
    match space:
        case EncodedText():
            return space
        case gymnasium.spaces.Text():
            return EncodedText(encoder, space.max_length, charset=space.character_set)
        case gymnasium.spaces.Dict():
            return gymnasium.spaces.Dict({key: _encoded(each, encoder) for key, each in space.spaces.items()})
        case gymnasium.spaces.Tuple():
            return gymnasium.spaces.Tuple([_encoded(each, encoder) for each in space.spaces])
    return space
