"""Environments: one stream of steps over all of gymnasium's forms, checked, with episodes counted; probes."""

from learnloop.envs.checks import check_env
from learnloop.envs.episodes import Episode
from learnloop.envs.registry import ALIASES, register_envs, resolve_env
from learnloop.envs.spaces import ActionEdge, from_gymnasium
from learnloop.envs.streams import AnyEnv, EnvStream, Vectorization, make_stream

__all__ = [
    "ALIASES",
    "ActionEdge",
    "AnyEnv",
    "EnvStream",
    "Episode",
    "Vectorization",
    "check_env",
    "from_gymnasium",
    "make_stream",
    "register_envs",
    "resolve_env",
]
