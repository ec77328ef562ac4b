"""The protocols by which the rooms meet.

Contexts are mappings from feature names to numbers, booleans or text. Actions are text. Arrays are numpy's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from learnloop.core.arrays import F32, F64

    Floats = F64
    Vectors = F32

ContextValue = float | int | bool | str
Context = Mapping[str, ContextValue]


class Question(dict[str, Any]):
    """A context with what else a policy of the decision service may choose by.

    Its values may be nested: objects, lists, numbers, booleans, text, None. A policy that knows of neither features of
    actions nor vectors takes it as the plain context that it is.

    Attributes:
        action_features: what is known of each action, in the order of the actions; None: their names alone.
        vector: numbers such as an embedding, float32 of shape ``(n,)``; None: there is none.
    """

    __slots__ = ("action_features", "vector")

    action_features: Sequence[Mapping[str, Any]] | None
    vector: F32 | None

    def __init__(
        self,
        context: Mapping[str, Any],
        action_features: Sequence[Mapping[str, Any]] | None = None,
        vector: F32 | None = None,
    ) -> None:
        super().__init__(context)
        self.action_features = action_features
        self.vector = vector


class Sample(NamedTuple):
    """One logged decision with what it earned: what an algorithm learns from."""

    unit: str
    """The episode; samples of one unit are not independent of each other."""
    context: Context
    actions: Sequence[str]
    mask: Sequence[bool] | None
    action: str
    propensity: float | None
    reward: float
    made_at: float | None = None
    """When it was chosen, in seconds since 1970; None: not known."""
    shared: str | None = None
    """What its reward was given for, where that is more than this decision: samples with the same name earned one
    reward together. None: the reward is its own."""
    importance: float = 1.0
    """How many decisions it stands for, at least 1, where others like it were left out of the log at random."""


TENSOR_TYPES = ("float64", "float32", "int64", "bool")
"""What numpy calls the types that a tensor of a policy may have."""


class PolicyArtifact(NamedTuple):
    """A policy as data: what the registry stores and what a policy is built from."""

    algorithm: str
    """The tag that says which class reads it."""
    config: Mapping[str, Any]
    """JSON: hyper-parameters, encoder, action names."""
    tensors: Mapping[str, NDArray[Any]]


@runtime_checkable
class Policy(Protocol):
    """Maps a context to a distribution over actions; deployable, never learns."""

    def probabilities(self, context: Context, actions: Sequence[str], mask: Sequence[bool] | None = None) -> Floats:
        """Returns the probability of each action, shape ``(len(actions),)``; 0 where ``mask`` is False."""
        ...


@runtime_checkable
class SavedPolicy(Policy, Protocol):
    """A policy that can be stored."""

    def to_artifact(self) -> PolicyArtifact:
        """Returns all that is needed to build it again."""
        ...


class Trainer(Protocol):
    """Makes a policy from logged samples; the same samples and seed give the same policy."""

    def train(self, samples: Sequence[Sample], seed: int) -> Policy:
        """Returns the policy learned from ``samples``, in their order."""
        ...


class HeldOut(Protocol):
    """Tasks that no policy under test was trained on, and what a policy earns on them."""

    @property
    def units(self) -> Sequence[str]:
        """The episodes, one a row of what ``rewards`` returns."""
        ...

    def rewards(self, policy: Policy) -> Floats:
        """Returns what ``policy`` is expected to earn on each unit, shape ``(len(units),)``."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors of length 1, so that the product of two is the cosine of their angle.

    The same text has the same vector wherever and in whatever company it is embedded. For any number of threads.
    """

    @property
    def name(self) -> str:
        """Which model, for messages and lists."""
        ...

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        ...

    @property
    def content_id(self) -> str:
        """Differs wherever the vectors may differ; vectors of two content ids are never compared."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Returns the vector of each text, float32 of shape ``(len(texts), dimension)``, finite."""
        ...
