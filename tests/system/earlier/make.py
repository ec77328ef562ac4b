"""Makes the files beside it, with the code of commit 38f3475: state in the formats that it had before there was one.

``PYTHONPATH=<a checkout of 38f3475>/src python tests/system/earlier/make.py``. Tests read what it made then.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
TENSORS = {"a/x": np.arange(7, dtype=np.float32), "b": np.zeros((0, 3), dtype=np.int64)}
VALUES = {"rng": {"state": 2**127 + 1}, "seen": [1.5, None]}


def main() -> None:
    """Writes one file, or folder, of each format."""
    from learnloop.algorithms.replay_files import write_replay
    from learnloop.decisions.checkpoints import _pack
    from learnloop.decisions.named_checkpoints import NamedCheckpoints, Saved

    from learnloop.core.datasets import Dataset
    from learnloop.core.protocols import PolicyArtifact
    from learnloop.core.spaces import Box, Discrete, Spaces
    from learnloop.training.checkpoints import Checkpoint, save_checkpoint
    from learnloop.training.run_files import write_dataset

    save_checkpoint(HERE / "checkpoints", Checkpoint(7, TENSORS, VALUES))
    NamedCheckpoints(HERE / "named", "test/v1", 1 << 20).save("one", Saved(TENSORS, VALUES))
    write_replay(HERE, {"actions": np.arange(5), "masks": np.array([True, False])})
    (HERE / "online.blob").write_bytes(_pack(PolicyArtifact("a", {"b": [1]}, {"w": np.arange(3.0)}), "bot.p"))
    write_dataset(
        HERE / "dataset.safetensors",
        Dataset(
            spaces=Spaces(observation=Box(shape=(2,), low=(None, None), high=(None, None)), action=Discrete(n=2)),
            observations=np.arange(8, dtype=np.float32).reshape(4, 2),
            actions=np.array([0, 1, 1, 0]),
            rewards=np.array([0.0, 1.0, 0.5, 0.25]),
            next_observations=np.arange(2, 10, dtype=np.float32).reshape(4, 2),
            terminated=np.array([False, True, False, False]),
            truncated=np.array([False, False, False, True]),
            episodes=np.array([0, 0, 1, 1]),
            goals=["left", ""],
            source="a test",
        ),
    )


if __name__ == "__main__":
    main()
