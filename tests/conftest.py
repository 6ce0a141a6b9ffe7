"""Options of the whole suite."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics import registry as registry_module
from goal_sweep.goal_core.basics.registry import REGISTRIES
from tests.helpers import properties  # noqa: F401  # whose profile holds for all tests
from tests.helpers.once import made_once
from tests.helpers.paths import ROOT

# `nohup make test &` ignores both, and the processes that tests start would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
# The first gradient of a process counts its devices. After a `FakeTensorMode` it counts a GPU that is not there,
# starts threads for it, and no fork of this process may compute a gradient any more.
torch.ones(1, requires_grad=True).sum().backward()
STRAYS = [ROOT / name for name in ("goal-sweep-store", "mlflow.db", "mlruns")]
"""What a command that was not told where to write leaves in the working directory."""
_OLD_STRAYS = [path for path in STRAYS if path.exists()]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A tracking database without runs, to copy: creating its tables takes seconds."""
    from goal_sweep.runners.tracking.experiment import create_database

    return made_once(tmp_path_factory, worker_id, "empty.db", create_database)


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for disks that are only refusing in a test."""
    monkeypatch.setattr(atomic, "RETRY_DELAYS", (0.0, 0.0))


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Remember no check of weights between tests or from other commands."""
    monkeypatch.setenv("GOAL_SWEEP_CACHE", str(tmp_path_factory.mktemp("checked")))


@pytest.fixture
def without_plugins() -> Iterator[None]:
    """Leave no part of a plugin behind, and remember none."""
    before = {kind: dict(registry) for kind, registry in REGISTRIES.items()}
    yield
    registry_module._ran.clear()
    for kind, registry in REGISTRIES.items():
        registry.clear()
        registry.update(before[kind])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="Write the golden files anew instead of comparing with them."
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of which a test has written into the checkout."""
    left = [path for path in STRAYS if path.exists() and path not in _OLD_STRAYS]
    if left and not hasattr(session.config, "workerinput"):
        print(f"\na test has left {', '.join(map(str, left))}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
