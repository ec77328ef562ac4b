"""What a learned reward sees of an attempt, the meaning of prompt and output and figures of the run, and as columns.

A figure that is not known is NaN here and never 0. The ground truth is not among the features: where it is known, other
rewards use it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from learnloop.core.arrays import F64, Bools, Indices
from learnloop.core.attempts import Attempt
from learnloop.core.protocols import Embedder

LENGTH = "output_length"
SIMILARITY = "similarity"
BLOCK_VARIANCE = 32.0
"""Of the hundreds of numbers of a text together; a figure of the run has 1. A ridge penalty then weighs the meaning of
a text like some figures and not like hundreds."""
RANGE_MARGIN = 1.0
"""In standard deviations: how far a figure may lie outside of what was labelled."""


def _log(number: float | None) -> float:
    return math.nan if number is None else math.log1p(max(number, 0.0))


def _num_errors(attempt: Attempt) -> int:
    return sum(call.error is not None for call in attempt.tool_calls)


def _share_of_errors(attempt: Attempt) -> float:
    calls = attempt.tool_calls
    return _num_errors(attempt) / len(calls) if calls else math.nan


FIGURES: Mapping[str, Callable[[Attempt], float]] = {
    LENGTH: lambda attempt: _log(None if attempt.output is None else len(attempt.output)),
    "prompt_length": lambda attempt: _log(None if attempt.prompt is None else len(attempt.prompt)),
    "num_steps": lambda attempt: _log(len(attempt.steps) or None),
    "num_tool_calls": lambda attempt: _log(len(attempt.tool_calls)) if attempt.steps else math.nan,
    "num_tool_errors": lambda attempt: _log(_num_errors(attempt)) if attempt.steps else math.nan,
    "share_of_tool_errors": _share_of_errors,
    "num_model_calls": lambda attempt: _log(attempt.num_model_calls),
    "num_input_tokens": lambda attempt: _log(attempt.num_input_tokens),
    "num_output_tokens": lambda attempt: _log(attempt.num_output_tokens),
    "duration_seconds": lambda attempt: _log(attempt.duration_seconds),
}
"""Figures of a run by name; counts and times as the logarithm of 1 + x, lengths in characters."""
NAMES = (*FIGURES, SIMILARITY)
"""The columns of ``AttemptFeatures.figures``; the last is the cosine of prompt and output."""


class AttemptFeatures(NamedTuple):
    """Attempts as numbers, a row each."""

    prompts: F64
    """Shape ``(num_attempts, dimension)``: what was asked; zeros where that is not known."""
    outputs: F64
    """Shape ``(num_attempts, dimension)``: what came out; zeros where that is not known."""
    figures: F64
    """Shape ``(num_attempts, len(NAMES))``: NaN where a figure is not known."""
    is_readable: Bools
    """Shape ``(num_attempts,)``: whether there is an output at all."""

    def rows(self, which: Indices | Bools) -> AttemptFeatures:
        """Returns some of the rows."""
        return AttemptFeatures(self.prompts[which], self.outputs[which], self.figures[which], self.is_readable[which])


def features_of(attempts: Sequence[Attempt], embedder: Embedder) -> AttemptFeatures:
    """Returns what a learned reward sees of each attempt."""
    prompts = _embedded([attempt.prompt for attempt in attempts], embedder)
    outputs = _embedded([attempt.output for attempt in attempts], embedder)
    figures = np.empty((len(attempts), len(NAMES)))
    for row, attempt in enumerate(attempts):
        figures[row, :-1] = [figure(attempt) for figure in FIGURES.values()]
    is_readable = np.array([attempt.output is not None for attempt in attempts], dtype=bool)
    has_both = is_readable & np.array([attempt.prompt is not None for attempt in attempts], dtype=bool)
    figures[:, -1] = np.where(has_both, np.einsum("ij,ij->i", prompts, outputs), np.nan)
    return AttemptFeatures(prompts, outputs, figures, is_readable)


def task_of(attempt: Attempt) -> str:
    """Returns which attempts belong together: those of one task; without one those of one prompt, or the run alone."""
    if attempt.task_id is not None:
        return f"task:{attempt.task_id}"
    if attempt.prompt is not None:
        return f"prompt:{hashlib.sha256(attempt.prompt.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return f"episode:{attempt.episode_id or id(attempt)}"


def _embedded(texts: Sequence[str | None], embedder: Embedder) -> F64:
    found = np.zeros((len(texts), embedder.dimension))
    known = [row for row, text in enumerate(texts) if text is not None]
    if known:
        found[known] = embedder.embed([text for text in texts if text is not None])
    return found


class Design(NamedTuple):
    """How features become columns; made from the labelled attempts that a model learns from, and stored with it."""

    prompt_mean: F64
    output_mean: F64
    text_scales: F64
    """Shape ``(2,)``: of prompts and of outputs."""
    means: F64
    """Shape ``(len(NAMES),)``, of the figures that are known."""
    scales: F64
    lows: F64
    """The least and the largest standardised figure that was seen; NaN where none was."""
    highs: F64

    @classmethod
    def of(cls, features: AttemptFeatures) -> Self:
        """Returns the design of these attempts."""
        prompt_mean, output_mean = features.prompts.mean(axis=0), features.outputs.mean(axis=0)
        totals = np.array([features.prompts.var(axis=0).sum(), features.outputs.var(axis=0).sum()])
        text_scales = np.sqrt(np.divide(BLOCK_VARIANCE, totals, out=np.zeros(2), where=totals > 1e-12))
        is_known = ~np.isnan(features.figures)
        counts = np.maximum(is_known.sum(axis=0), 1)
        known = np.where(is_known, features.figures, 0.0)
        means = known.sum(axis=0) / counts
        spreads = np.sqrt((np.where(is_known, features.figures - means, 0.0) ** 2).sum(axis=0) / counts)
        scales = np.where(spreads > 1e-9, spreads, 1.0)
        standard = (features.figures - means) / scales
        lows = np.where(is_known, standard, np.inf).min(axis=0)
        highs = np.where(is_known, standard, -np.inf).max(axis=0)
        lows[~np.isfinite(lows)], highs[~np.isfinite(highs)] = np.nan, np.nan
        return cls(prompt_mean, output_mean, text_scales, means, scales, lows, highs)

    def columns(self, features: AttemptFeatures) -> F64:
        """Returns the columns: texts, figures (0, the mean, where not known), and a 1 for each figure not known."""
        has_prompt = np.any(features.prompts != 0.0, axis=1)
        prompts = np.where(has_prompt[:, None], features.prompts - self.prompt_mean, 0.0) * self.text_scales[0]
        outputs = (features.outputs - self.output_mean) * self.text_scales[1]
        standard = self._standard(features)
        is_missing = np.isnan(standard)
        return np.hstack([prompts, outputs, np.where(is_missing, 0.0, standard), is_missing])

    def strangeness(self, features: AttemptFeatures) -> list[str | None]:
        """Returns for each attempt which figure lies outside of all that was labelled; None where none does."""
        standard = self._standard(features)
        with np.errstate(invalid="ignore"):
            is_outside = (standard < self.lows - RANGE_MARGIN) | (standard > self.highs + RANGE_MARGIN)
        return [NAMES[int(np.argmax(row))] if row.any() else None for row in is_outside]

    def _standard(self, features: AttemptFeatures) -> F64:
        standard: F64 = (features.figures - self.means) / self.scales
        standard[:, np.isnan(self.lows)] = np.nan  # a figure that was never seen says nothing
        return standard
