"""The built wheel in a clean environment: small, complete, and able to do its work with the core alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.project import ROOT

MAX_CORE_BYTES = 150 * 2**20
MAX_DISTRIBUTIONS = 40
MAX_WHEEL_BYTES = 3 * 2**20
FORBIDDEN = {"torch", "psycopg", "pgvector", "pytest", "httpx", "typer", "litellm", "transformers", "ray"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as an index would."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with nothing but the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return python


@pytest.mark.slow
def test_the_wheel_is_small_and_complete(wheel: Path) -> None:
    assert wheel.stat().st_size <= MAX_WHEEL_BYTES
    names = zipfile.ZipFile(wheel).namelist()
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "learnloop").rglob("*.py")}
    assert source <= set(names)
    assert "learnloop/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_core_is_small_and_brings_no_extra(python: Path) -> None:
    listed = subprocess.run([str(python), "-m", "pip", "list", "--format", "json"], capture_output=True, check=True)
    names = {each["name"].lower() for each in json.loads(listed.stdout)} - {"pip", "setuptools", "learnloop"}
    assert len(names) <= MAX_DISTRIBUTIONS
    assert names & FORBIDDEN == set()
    packages = next((python.parent.parent / "lib").glob("python3.*/site-packages"))
    own = [path for path in packages.iterdir() if path.name.split("-")[0] not in {"pip", "setuptools", "pkg_resources"}]
    size = sum(
        file.stat().st_size
        for path in own
        for file in ([path] if path.is_file() else path.rglob("*"))
        if file.is_file()
    )
    assert size <= MAX_CORE_BYTES


@pytest.mark.slow
def test_the_core_alone_does_its_work(python: Path, tmp_path: Path) -> None:
    learnloop = str(python.parent / "learnloop")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = """
import learnloop as ll
with ll.Loop("packer") as loop:
    for _ in range(60):
        with loop.episode(task="t") as ep:
            choice = loop.choose("codec", ["a", "b"], {"size": 3, "kind": "text"})
            ep.reward(saved=1.0 if choice == "a" else 0.0)
"""
    subprocess.run([learnloop, "init"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    subprocess.run([str(python), "-c", code], cwd=tmp_path, env=environment, check=True)
    doctor = subprocess.run(
        [learnloop, "doctor", "--json"], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    assert json.loads(doctor.stdout)["ok"]
    listed = subprocess.run(
        [learnloop, "traces", "list", "--json"], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    assert len(json.loads(listed.stdout)["data"]) == 50


@pytest.mark.slow
def test_a_missing_extra_says_what_to_type(python: Path, tmp_path: Path) -> None:
    command = [str(python.parent / "learnloop"), "--database", "postgresql://me@localhost/x", "traces", "list"]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert 'pip install "learnloop[postgres]"' in outcome.stderr
