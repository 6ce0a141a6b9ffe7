"""A sweep half done, to be shown."""

from __future__ import annotations

from dataclasses import replace

from runners.launch.progress import SweepProgress
from tests.helpers.store_cases import cell


def half_done() -> SweepProgress:
    """Fifteen objectives and three seeds: wide numbers, a failure, runs in progress, and the rest waiting."""
    pairs, triplets = ("con", "lin", "sig", "lin-ms", "sig-ms"), ("con", "nca", "cir")
    asked = [cell(pair, triplet, seed) for pair in pairs for triplet in triplets for seed in (1, 2, 3)]
    board = SweepProgress([replace(one, id=f"{number:016x}") for number, one in enumerate(asked)])
    for number, one in enumerate(board.cells[:20]):
        if number == 4:
            board.failed(one.id, "frozen", "NaN in the gradient at epoch 2, step 17: " + "long reason " * 12)
        elif number in (8, 12, 13, 14):
            board.running(one.id, "frozen", 1)
        else:
            numbers = {"test/i2t_r1": 100.0 - number * 7 % 30, "test/t2i_r1": 3.0 + number, "test/rsum": 300.0}
            board.done(one.id, "frozen", {"metrics": numbers})
    return board
