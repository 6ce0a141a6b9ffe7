"""The board's states, and the grid that the terminal shows of them."""

from __future__ import annotations

import pytest
from rich.console import Console

from runners.launch.live import overview
from runners.launch.progress import SweepProgress
from sweeps import Cell, expand, load_sweep


def cells(*overrides: str) -> list[Cell]:
    config = load_sweep("quickstart.yaml", overrides)
    return expand(config, "fingerprint", {item.name: "random" for item in config.model.backbones})


def shown(board: SweepProgress) -> list[str]:
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        console.print(overview(board, "sweep", live=False))
    return [line.rstrip() for line in capture.get().splitlines()]


def result(r1: float) -> dict[str, dict[str, float]]:
    return {"metrics": {"test/i2t_r1": r1, "test/t2i_r1": r1}}


def test_columns_and_rows_stand_in_the_tables_order_whatever_the_objectives() -> None:
    lines = shown(SweepProgress(cells("objectives.only=[con/cir, con/con, sig-ms/cir, lin-ms/nca]", "seeds=[1]")))
    head = next(line for line in lines if "con" in line and "nca" in line)
    assert head.split() == ["con", "nca", "cir"]
    assert [line.split()[0] for line in lines[4:7]] == ["con", "lin-ms", "sig-ms"]


def test_a_square_shows_mean_and_std_and_says_which_seeds_are_missing() -> None:
    chosen = cells("objectives.only=[con/con]", "seeds=[1, 2, 3]")
    board = SweepProgress(chosen)
    board.done(chosen[0].id, "frozen", result(50.0))
    board.done(chosen[1].id, "frozen", result(52.0))
    board.running(chosen[2].id, "frozen", 3)
    assert "51.0 ± 1.4 (2/3)" in " ".join(shown(board))
    board.failed(chosen[2].id, "frozen", "diverged")
    lines = shown(board)
    assert any("51.0 ± 1.4 (2/3) x" in line for line in lines)
    assert any(chosen[2].id in line and "diverged" in line for line in lines)
    # Its finetune stage cannot start any more.
    assert board.counts() == {"done": 2, "running": 0, "waiting": 2, "failed": 2}


def test_progress_and_time_left_follow_the_epochs() -> None:
    chosen = cells("objectives.only=[con/con]", "seeds=[1]")
    board = SweepProgress(chosen)
    assert board.eta_seconds() is None
    board.running(chosen[0].id, "frozen", 0)
    board.epoch_done(chosen[0].id, "frozen", 1, {"val/rsum": 12.0})
    total = sum(stage.config.epochs for stage in chosen[0].stages)
    assert board.progress() == pytest.approx(1 / total)
    assert board.eta_seconds() is not None
    for stage in chosen[0].stages:
        board.done(chosen[0].id, stage.config.name, result(50.0))
    assert board.progress() == 1.0
    assert board.eta_seconds() == 0.0
