"""Networks and encoders: from contexts to vectors. Knows nothing of policies or rewards.

``learnloop.nn.torch.network`` is imported by its own name only, so that nothing here loads torch.
"""

from learnloop.nn.distributions import (
    Categorical,
    DiagonalGaussian,
    Distribution,
    Evaluation,
    MultiCategorical,
    make_distribution,
)
from learnloop.nn.encoders.context_encoder import ContextEncoder
from learnloop.nn.encoders.context_schema import ContextSchema, FeatureKind
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from learnloop.nn.network import Network
from learnloop.nn.optimizers import Adam, AdamW, Optimizer, RMSprop, clip_coefficient, gradient_norm
from learnloop.nn.squashed_gaussian import Squashed, SquashedGaussian

__all__ = [
    "MLP",
    "Adam",
    "AdamW",
    "Categorical",
    "ContextEncoder",
    "ContextSchema",
    "DiagonalGaussian",
    "Distribution",
    "Evaluation",
    "FeatureKind",
    "Head",
    "MLPConfig",
    "MultiCategorical",
    "Network",
    "Optimizer",
    "RMSprop",
    "Squashed",
    "SquashedGaussian",
    "clip_coefficient",
    "gradient_norm",
    "make_distribution",
]
