"""Kendall's tau between two grids and its noise, where the truth is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.statistics.survival import _by_noise, _tau

NUM_OBJECTIVES = 15


def share_beyond_chance(*, same: int = 0, together: float = 0.0, signal: float = 0.0, num: int = 100) -> float:
    """How often tau exceeds chance and its interval lies above 0, for grids of the same true order.

    Args:
        same: objectives that have the same trainings in both grids.
        together: correlation of the noise of both grids at the same seed.
        signal: deviation of the true means, in units of the noise; 0 makes all objectives equal.
    """
    random, found = np.random.default_rng(0), 0
    chosen_default = np.arange(NUM_OBJECTIVES) < same
    for _ in range(num):
        truth = signal * random.normal(size=NUM_OBJECTIVES)
        first, second = random.normal(size=(2, 3, NUM_OBJECTIVES))
        default = truth + first
        tuned = np.where(chosen_default, default, truth + together * first + (1 - together**2) ** 0.5 * second)
        tau = _tau(default.mean(axis=0), tuned.mean(axis=0))
        interval, chance = _by_noise(pd.DataFrame(default), pd.DataFrame(tuned), chosen_default, tau)
        assert tau is not None
        assert interval is not None
        assert chance is not None
        found += interval[0] > 0 and tau > chance[1]
    return found / num


@pytest.mark.parametrize(("same", "together"), [(0, 0.0), (5, 0.0), (8, 0.0), (0, 0.5)])
def test_noise_alone_seldom_passes_for_a_ranking_that_survives(same: int, together: float) -> None:
    assert share_beyond_chance(same=same, together=together) <= 0.1


def test_a_clear_ranking_that_survives_is_found() -> None:
    assert share_beyond_chance(signal=2.0, num=30) >= 0.9


def test_one_seed_has_no_interval() -> None:
    frame = pd.DataFrame([[1.0, 2.0, 3.0]])
    assert _by_noise(frame, frame, np.zeros(3, dtype=bool), 1.0) == (None, None)
