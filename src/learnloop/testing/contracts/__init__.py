"""Contracts: what an implementation of each kind promises, as tests that its author imports.

``check_contract`` runs one without pytest.
"""

from learnloop.testing.contracts.algorithm import AlgorithmContract
from learnloop.testing.contracts.buffer import BufferContract, PrioritisedBufferContract
from learnloop.testing.contracts.contract import Contract, ContractError, ContractReport, check_contract, rules_of
from learnloop.testing.contracts.encoder import EncoderContract
from learnloop.testing.contracts.environment import EnvironmentContract
from learnloop.testing.contracts.network import NetworkContract
from learnloop.testing.contracts.offline import OfflineAlgorithmContract
from learnloop.testing.contracts.policy import PolicyContract, SpacePolicyContract
from learnloop.testing.contracts.store import StoreContract

__all__ = [
    "AlgorithmContract",
    "BufferContract",
    "Contract",
    "ContractError",
    "ContractReport",
    "EncoderContract",
    "EnvironmentContract",
    "NetworkContract",
    "OfflineAlgorithmContract",
    "PolicyContract",
    "PrioritisedBufferContract",
    "SpacePolicyContract",
    "StoreContract",
    "check_contract",
    "rules_of",
]
