"""The squares of a block in training: score, epoch and seeds, with and without colour, at any size of the terminal."""

from dataclasses import replace

import pytest
from rich.console import Console

from goal_sweep.runners.launch.view import DONE, FAILED, SHARES, WAITING, SweepProgress, block_grid, legend, overview
from goal_sweep.sweeps import ResolvedSweep
from tests.helpers.progress_cases import half_done, printed, status
from tests.helpers.sweep_cases import resolved, scenes


def text_of(renderable: object, width: int = 80, height: int = 24) -> list[str]:
    return [line.rstrip() for line in printed(renderable, width, height).splitlines()]


def in_training(sweep: ResolvedSweep) -> SweepProgress:
    """con/con: done, epoch 2 of 3, waiting; con/nca: all done; con/cir: failed, and two that wait."""
    progress = SweepProgress(sweep.trainings)
    seeds = list(progress.blocks[next(iter(progress.blocks))].values())
    for one, val in ((seeds[0][0], 300.0), *((seed, 310.0 + number) for number, seed in enumerate(seeds[1]))):
        metrics = {"test/i2t_r1": val / 6, "test/t2i_r1": val / 8, "val/rsum": val}
        progress.set(one, status("done", metrics=metrics))
    progress.running(seeds[0][1], 1, 290.0)
    progress.running(seeds[0][1], 2, 270.0)
    progress.set(seeds[2][0], status("failed", reason="lost"))
    return progress


def grid_of(progress: SweepProgress) -> list[str]:
    return text_of(block_grid(progress, next(iter(progress.blocks))), width=120)


def test_a_square_has_the_score_and_a_mark_for_each_seed() -> None:
    progress = in_training(resolved("con/con", "con/nca", "con/cir", seeds=(1, 2, 3)))
    title, head, squares = grid_of(progress)
    assert title == "scenes vsepp test_byobnet frozen: 4 of 9 done, 1 running (epoch 2/3), 1 failed"
    assert head.split() == ["con", "nca", "cir"]
    # The mean over the seeds with the most epochs, and their spread.
    assert squares.split() == "con 300.0 █▅· *311.0 ± 1.0 ███ -- x··".split()


def test_of_a_search_the_candidate_with_the_best_mean_is_drawn() -> None:
    trainings = resolved("con/con", seeds=(1, 2, 3, 4)).trainings
    progress = SweepProgress([replace(one, number=place // 2) for place, one in enumerate(trainings)])
    for one, val in zip(progress.trainings, (300.0, 200.0, 240.0, 270.0), strict=True):
        progress.set(one, status("done", metrics={"val/rsum": val}))
    assert grid_of(progress)[2].split() == "con *255.0 ± 21.2 ████".split()


def test_a_baseline_is_a_row_of_its_own_below_the_grid() -> None:
    three = "objectives.only=[con/con,con/nca,con/cir]"
    progress = SweepProgress(scenes(three, "objectives.baselines=[infonce]", "seeds=[1]").trainings)
    block = next(iter(progress.blocks))
    for number, (one,) in enumerate(progress.blocks[block].values()):
        progress.set(one, status("done", metrics={"test/i2t_r1": 90.0 + number}))
    grid = text_of(block_grid(progress, block, "test/i2t_r1"))
    squares = ("con", "nca", "cir"), ("con", "90.0", "91.0", "92.0"), (), ("infonce", "*93.0")
    assert tuple(tuple(line.split()) for line in grid[1:]) == squares
    assert text_of(block_grid(progress, block, "test/i2t_r1", width=40))[-2:] == ["", "infonce   *93.0"]


def test_more_seeds_than_marks_are_counted() -> None:
    progress = in_training(resolved("con/con", "con/nca", "con/cir", seeds=tuple(range(1, 9))))
    assert grid_of(progress)[2].split() == "con 300.0 1/8 *313.5 ± 2.4 8/8 -- 0/8 x1".split()


def test_what_waits_with_saved_epochs_is_shown_as_begun() -> None:
    progress = in_training(resolved("con/con", "con/nca", "con/cir", seeds=(1, 2, 3)))
    progress.waiting(progress.blocks[next(iter(progress.blocks))]["con", "con"][1])
    title, _, squares = grid_of(progress)
    assert title.endswith("4 of 9 done, 1 begun, 1 failed")
    assert "█▅·" in squares


def test_the_legend_explains_every_sign_within_80_columns() -> None:
    lines = text_of(legend("· *1.0", has_scores=True), width=200)
    assert max(map(len, lines)) <= 80
    for sign in (WAITING, SHARES[0], SHARES[-1], DONE, FAILED, "*", "val rsum"):
        assert sign in " ".join(lines)
    assert not legend("con 41.6 ± 1.8  6/46", has_scores=False).plain


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_block_in_training_is_drawn_first_and_all_others_below(width: int) -> None:
    progress = SweepProgress(scenes("model.backbones=[resnet18,resnet34]").trainings)
    busy = next(one for one in progress.trainings if one.blocks[0].backbone == "resnet34")
    progress.running(busy, 1)
    terminal = Console(width=width, height=100)
    lines = text_of(overview(progress, "quickstart", width=width, room=terminal), width, 100)
    titles = [number for number, line in enumerate(lines) if "scenes vsepp" in line]
    assert len(titles) == 4
    assert lines[titles[0]].startswith("scenes vsepp resnet34 frozen: 0 of 45 done, 1 running")
    assert titles[0] <= 5
    assert sum(line.count("nca") for line in lines) == 4


@pytest.mark.parametrize(("width", "height", "whole"), [(80, 24, 2), (60, 24, 1), (80, 60, 3)])
def test_what_a_terminal_has_no_room_for_is_left_out_as_a_whole(width: int, height: int, whole: int) -> None:
    terminal = Console(width=width, height=height)
    lines = text_of(overview(half_done(), "quickstart", width=width, room=terminal), width, height)
    assert sum(line.startswith("con  ") for line in lines) >= whole
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert lines[-1].startswith("* highest")
