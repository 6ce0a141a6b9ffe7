"""Synthetic scenes: what they contain, their captions and their pictures, and a dataset of them."""

from goal_sweep.goal_core.data.scenes.dataset import open_scenes
