"""A real Slurm of two nodes on this machine, for all tests here, and an unbroken launch to compare with."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.helpers import slurm
from tests.helpers.launches import goal_sweep, sweep_in, tampered_trainer


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The environment in which Slurm's commands find the two nodes."""
    if lacking := slurm.missing():
        pytest.skip(f"Slurm is not installed (no {', '.join(lacking)}): apt-get install slurm-wlm munge")
    with slurm.two_nodes(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished launch of the same sweep on this machine alone."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    goal_sweep(sweep_in(folder), "launch", "tiny.yaml", status=0)
    return folder


@pytest.fixture(scope="session")
def slow_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH with which every step of a training takes a second longer, so that a job can be disturbed."""
    environment = tampered_trainer(tmp_path_factory.mktemp("slow") / "path", "time.sleep(1.0)")
    return environment["PYTHONPATH"].rstrip(os.pathsep)
