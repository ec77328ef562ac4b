"""Environments: one stream of steps over all of gymnasium's forms, checked, with episodes counted; probes."""

from learnloop.envs.goals.commands import CheckedBy, CommandAction, GoalCommands, HasFiles, shell
from learnloop.envs.goals.records import Goal, GoalExecutor, Outcome
from learnloop.envs.goals.simulator import GoalSimulator, WorldAction
from learnloop.envs.goals.task import GoalRewards, GoalTask
from learnloop.envs.prompt_mutation import PromptMutationSimulator
from learnloop.envs.registry import ALIASES, register_envs, resolve_env
from learnloop.envs.spaces import EncodedText
from learnloop.envs.streams.make import check_env, make_stream
from learnloop.envs.streams.stream import EnvStream, FinishedEpisode
from learnloop.envs.tool_use import ToolUse, ToolWorld

__all__ = [
    "ALIASES",
    "CheckedBy",
    "CommandAction",
    "EncodedText",
    "EnvStream",
    "FinishedEpisode",
    "Goal",
    "GoalCommands",
    "GoalExecutor",
    "GoalRewards",
    "GoalSimulator",
    "GoalTask",
    "HasFiles",
    "Outcome",
    "PromptMutationSimulator",
    "ToolUse",
    "ToolWorld",
    "WorldAction",
    "check_env",
    "make_stream",
    "register_envs",
    "resolve_env",
    "shell",
]
