"""The short form of `make chaos`: a launch that meets a few random faults."""

import random
from pathlib import Path

import pytest

from tests.helpers import chaos
from tests.helpers.launches import EPOCHS, sweep_in

pytestmark = [pytest.mark.integration, pytest.mark.exhaustive, pytest.mark.timeout(900)]


def test_a_launch_with_random_faults_ends_with_the_same_numbers(unbroken: Path, tmp_path: Path) -> None:
    log = chaos.Log(random.Random(2))
    folder = sweep_in(tmp_path / "run")
    chaos.run_through(folder, log, most=4)
    chaos.compare(folder, unbroken, EPOCHS)
    assert any(log.counts[name] for name in chaos.FAULTS)
