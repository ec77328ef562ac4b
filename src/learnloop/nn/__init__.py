"""Networks and encoders: from contexts to vectors. Knows nothing of policies or rewards.

``learnloop.nn.torch.network`` is imported by its own name only, so that nothing here loads torch.
"""

from learnloop.nn.encoders.context_encoder import ContextEncoder
from learnloop.nn.encoders.context_schema import ContextSchema, FeatureKind
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from learnloop.nn.network import Network
from learnloop.nn.optimizers import Adam, AdamW, Optimizer, RMSprop

__all__ = [
    "MLP",
    "Adam",
    "AdamW",
    "ContextEncoder",
    "ContextSchema",
    "FeatureKind",
    "Head",
    "MLPConfig",
    "Network",
    "Optimizer",
    "RMSprop",
]
