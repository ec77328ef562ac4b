"""Features as columns of one size: centred, scaled, and with what is missing said apart."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from learnloop.core.arrays import F64
from learnloop.rewards.learned.features import NAMES, Features

BLOCK_VARIANCE = 32.0
"""Of the hundreds of numbers of a text together; a figure of the run has 1. A ridge penalty then weighs the meaning of
a text like some figures and not like hundreds."""
RANGE_MARGIN = 1.0
"""In standard deviations: how far a figure may lie outside of what was labelled."""


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
    def of(cls, features: Features) -> Self:
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

    def columns(self, features: Features) -> F64:
        """Returns the columns: texts, figures (0, the mean, where not known), and a 1 for each figure not known."""
        has_prompt = np.any(features.prompts != 0.0, axis=1)
        prompts = np.where(has_prompt[:, None], features.prompts - self.prompt_mean, 0.0) * self.text_scales[0]
        outputs = (features.outputs - self.output_mean) * self.text_scales[1]
        standard = self._standard(features)
        is_missing = np.isnan(standard)
        return np.hstack([prompts, outputs, np.where(is_missing, 0.0, standard), is_missing])

    def strangeness(self, features: Features) -> list[str | None]:
        """Returns for each attempt which figure lies outside of all that was labelled; None where none does."""
        standard = self._standard(features)
        with np.errstate(invalid="ignore"):
            is_outside = (standard < self.lows - RANGE_MARGIN) | (standard > self.highs + RANGE_MARGIN)
        return [NAMES[int(np.argmax(row))] if row.any() else None for row in is_outside]

    def _standard(self, features: Features) -> F64:
        standard: F64 = (features.figures - self.means) / self.scales
        standard[:, np.isnan(self.lows)] = np.nan  # a figure that was never seen says nothing
        return standard
