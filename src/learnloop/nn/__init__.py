"""Networks and encoders: from contexts to vectors. Knows nothing of policies or rewards."""

from learnloop.nn.context_encoder import ContextEncoder
from learnloop.nn.context_schema import ContextSchema, FeatureKind

__all__ = ["ContextEncoder", "ContextSchema", "FeatureKind"]
