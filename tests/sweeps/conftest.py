from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from goal_sweep.sweeps import ResolvedSweep, SweepConfig, SweepError, load_sweep

SMALL = """\
name: small
data:
  format: scenes
  num_train: 20
model:
  backbones: [{name: resnet10t, weights: random}, resnet18]
  embed_dim: 64
seeds: [1, 2]
stages:
  - name: frozen
    epochs: 3
    lr: 1e-3
  - name: finetune
    epochs: 2
    lr: 1e-4
"""


@pytest.fixture
def small_text() -> str:
    return SMALL


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a file into a fresh current directory: `write("a.yaml", text)`."""
    monkeypatch.chdir(tmp_path)

    def write_file(name: str = "small.yaml", text: str = SMALL) -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return write_file


@pytest.fixture
def small(write: Callable[..., Path]) -> SweepConfig:
    return load_sweep(write())


@pytest.fixture
def resolved(small: SweepConfig) -> ResolvedSweep:
    """The small sweep with its cells: 2 backbones x 2 seeds x every objective."""
    return ResolvedSweep(config=small, data_fingerprint="f", weights={"resnet10t": "random", "resnet18": "timm"})


@pytest.fixture
def errors_of() -> Callable[..., list[str]]:
    """The lines of the error that loading a sweep raises."""

    def lines(sweep: str | Path, *overrides: str, environ: dict[str, str] | None = None) -> list[str]:
        with pytest.raises(SweepError) as caught:
            load_sweep(sweep, overrides, environ=environ)
        assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
        return str(caught.value).splitlines()

    return lines
