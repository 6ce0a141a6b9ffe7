"""The figures of the objectives draw the numbers they are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.quiver import Quiver

from goal_sweep.analysis.figures.objectives import draw_gradient_fields, draw_pair_weights, draw_triplet_weights
from goal_sweep.goal_core.objectives import list_objectives
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from goal_sweep.goal_core.objectives.pointwise import weights_at

PNG = b"\x89PNG\r\n\x1a\n"


def at(pair: str, triplet: str) -> Callable[..., Any]:
    def weights(pos: np.ndarray, neg: np.ndarray):
        return weights_at(GradientObjective(pair=pair, triplet=triplet), torch.from_numpy(pos), torch.from_numpy(neg))

    return weights


def test_triplet_diagrams_show_the_weights(tmp_path: Path) -> None:
    def diagram(name: str) -> Callable[..., Any]:
        return lambda pos, neg: at("con", name)(pos, neg).triplet.numpy()

    figure = draw_triplet_weights({name: diagram(name) for name in ("con", "nca", "cir")})
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["T  con", "T  nca", "T  cir"]
    shown = np.asarray(panels[1].images[0].get_array())
    assert shown[0, -1] == pytest.approx(1 / (1 + np.exp(20)))  # bottom right: s_p = 1, s_n = -1
    assert shown[-1, -1] == pytest.approx(0.5)
    figure.savefig(tmp_path / "triplets.png")
    assert (tmp_path / "triplets.png").read_bytes().startswith(PNG)


def test_pair_curves_show_both_weights(tmp_path: Path) -> None:
    names = ("con", "lin", "sig", "lin-ms", "sig-ms")

    def curve(name: str) -> Callable[..., Any]:
        def both(pos: np.ndarray, neg: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            weights = at(name, "con")(pos, neg)
            return weights.pos.numpy(), weights.neg.numpy()

        return both

    figure = draw_pair_weights({name: curve(name) for name in names})
    assert len(figure.axes) == 5
    pull, push = (np.asarray(line.get_ydata())[::100] for line in figure.axes[1].lines[-2:])
    np.testing.assert_allclose(pull, [2, 1.5, 1, 0.5, 0])
    np.testing.assert_allclose(push, [-1, -0.5, 0, 0.5, 1])
    figure.savefig(tmp_path / "pairs.png")
    assert (tmp_path / "pairs.png").read_bytes().startswith(PNG)


def test_gradient_fields_point_downhill(tmp_path: Path) -> None:
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
    figure.savefig(tmp_path / "fields.png", dpi=60)
    assert (tmp_path / "fields.png").read_bytes().startswith(PNG)
