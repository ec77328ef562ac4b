"""A learned reward as two files: ``reward.json`` (what it is and how good) and ``weights.safetensors`` (its numbers).

The SHA-256 of ``reward.json`` names it, and that file holds the checksum of the other. Nothing is ever executed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from learnloop.core.decoding import decode_json
from learnloop.core.errors import CorruptError, NotFoundError, StoreError, UsageError
from learnloop.core.protocols import Embedder
from learnloop.rewards.learned.features import NAMES, Design
from learnloop.rewards.learned.logistic import Fit
from learnloop.rewards.learned.reward import LearnedModel, LearnedReward, LearnedRewardReport
from learnloop.system.files import remove_folder, write_folder, writing
from learnloop.system.state_file import Tensors, load_tensors

FORMAT = "learnloop.reward/v1"
REWARD_FILE = "reward.json"
WEIGHTS_FILE = "weights.safetensors"


class _RewardFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    embedder: str
    embedder_name: str
    dimension: int
    figures: list[str]
    report: LearnedRewardReport
    weights_sha256: str


def content_hash_of(model: LearnedModel, report: LearnedRewardReport, embedder: Embedder) -> str:
    """Returns the SHA-256 by which a learned reward is known."""
    return hashlib.sha256(_encoded(model, report, embedder)[0]).hexdigest()


def save_learned_reward(reward: LearnedReward, folder: Path) -> Path:
    """Writes a learned reward into a folder of its own in ``folder``, named by its content hash, and returns that.

    One that is there already is the newest again; where its files are not what was written, they are replaced.

    Raises:
        StoreFullError, StoreReadOnlyError, StoreError: the disk refuses.
    """
    place = folder / reward.content_hash
    files = dict(zip((REWARD_FILE, WEIGHTS_FILE), _encoded(reward.model, reward.report, reward.embedder), strict=True))
    if _is_whole(place, files):
        with writing(place):
            os.utime(place)
        return place
    remove_folder(place)
    try:
        write_folder(place, files)
    except StoreError:
        if not _is_whole(place, files):  # else another process wrote the same bytes just now
            raise
    return place


def _is_whole(place: Path, files: Mapping[str, bytes]) -> bool:
    try:
        return all((place / name).read_bytes() == data for name, data in files.items())
    except OSError:
        return False


def load_learned_reward(place: Path, embedder: Embedder) -> LearnedReward:
    """Returns a stored learned reward.

    Args:
        place: its folder, named by its content hash.
        embedder: the same that it was learned with.

    Raises:
        NotFoundError: there is none.
        CorruptError: the files are not what was written.
        UsageError: it was learned with another embedder.
    """
    data, weights = _read(place / REWARD_FILE), _read(place / WEIGHTS_FILE)
    content_hash = hashlib.sha256(data).hexdigest()
    if content_hash != place.name:
        raise CorruptError(f"{place / REWARD_FILE} has the SHA-256 {content_hash}: it was changed, or moved elsewhere")
    what = f"{place / REWARD_FILE} does not describe a learned reward"
    told = decode_json(data, what, _RewardFile, error=CorruptError)
    if told.format != FORMAT or told.figures != list(NAMES):
        raise CorruptError(f"{place / REWARD_FILE} is of another version of learnloop; learn the reward again")
    if hashlib.sha256(weights).hexdigest() != told.weights_sha256:
        raise CorruptError(f"{place / WEIGHTS_FILE} was changed or cut")
    if told.embedder != embedder.content_id:
        raise UsageError(
            f"this reward was learned with {told.embedder_name} ({told.embedder}), not with {embedder.name} "
            f"({embedder.content_id}); use the same embedder, or learn it again"
        )
    tensors = load_tensors(weights, str(place / WEIGHTS_FILE))
    return LearnedReward(_model(tensors, place), told.report, embedder, content_hash)


def _encoded(model: LearnedModel, report: LearnedRewardReport, embedder: Embedder) -> tuple[bytes, bytes]:
    tensors: dict[str, NDArray[Any]] = dict(model.design._asdict())
    tensors["coefficients"] = np.append(model.fit.coefficients, model.fit.intercept)
    tensors["covariance"] = model.covariance
    tensors["calibration"] = model.calibration
    # float32 would do for the covariance; one type keeps a loaded model equal to the one that was learned
    weights = save({name: np.ascontiguousarray(tensors[name], dtype="<f8") for name in sorted(tensors)})
    told = _RewardFile(
        format=FORMAT,
        embedder=embedder.content_id,
        embedder_name=embedder.name,
        dimension=embedder.dimension,
        figures=list(NAMES),
        report=report,
        weights_sha256=hashlib.sha256(weights).hexdigest(),
    )
    return msgspec.json.encode(told, order="sorted"), weights


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"there is no learned reward at {path}") from error
    except OSError as error:
        raise CorruptError(f"{path} cannot be read ({error.strerror or error})") from error


def _model(tensors: Tensors, place: Path) -> LearnedModel:
    try:
        design = Design(**{name: tensors[name] for name in Design._fields})
        coefficients = tensors["coefficients"]
        fit = Fit(coefficients[:-1], float(coefficients[-1]))
        return LearnedModel(design, fit, tensors["covariance"], tensors["calibration"])
    except (KeyError, IndexError) as error:
        raise CorruptError(f"{place / WEIGHTS_FILE} lacks the tensor {error}") from error
