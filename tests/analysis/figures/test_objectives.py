"""The figures of the objectives draw the numbers they are given."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.quiver import Quiver

from goal_sweep.analysis.figures.objectives import draw_gradient_fields, draw_triplet_weights
from goal_sweep.goal_core.objectives import list_objectives
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from goal_sweep.goal_core.objectives.trial import weights_at


def at(pair: str, triplet: str) -> Callable[..., Any]:
    def weights(pos: np.ndarray, neg: np.ndarray):
        return weights_at(GradientObjective(pair=pair, triplet=triplet), torch.from_numpy(pos), torch.from_numpy(neg))

    return weights


def test_triplet_diagrams_show_the_weights() -> None:
    def diagram(name: str) -> Callable[..., Any]:
        return lambda pos, neg: at("con", name)(pos, neg).triplet.numpy()

    figure = draw_triplet_weights({name: diagram(name) for name in ("con", "nca", "cir")})
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["T  con", "T  nca", "T  cir"]
    shown = np.asarray(panels[1].images[0].get_array())
    assert shown[0, -1] == pytest.approx(1 / (1 + np.exp(20)))  # bottom right: s_p = 1, s_n = -1
    assert shown[-1, -1] == pytest.approx(0.5)


def test_gradient_fields_point_downhill() -> None:
    def field(pair: str, triplet: str) -> Callable[..., Any]:
        return lambda pos, neg: tuple(part.numpy() for part in at(pair, triplet)(pos, neg).gradient)

    objectives = list_objectives()
    figure = draw_gradient_fields({(o.pair, o.triplet): field(o.pair, o.triplet) for o in objectives})
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert len(panels) == len(objectives)
    assert panels[0].get_title() == "con/con"
    arrows = next(artist for artist in panels[0].collections if isinstance(artist, Quiver))
    assert np.all(np.asarray(arrows.U) > 0)  # s_p grows, s_n falls, at equal speed
    np.testing.assert_allclose(np.asarray(arrows.U), -np.asarray(arrows.V))
    assert len(np.asarray(arrows.U)) < 14**2  # triplets beyond the margin have dots instead
