"""Paths of the checkout and of the real data that may lie next to it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCENES = str(Path(__file__).with_name("scenes.yaml"))
"""A sweep of both stages on drawn scenes, in minutes."""
SHARED = ROOT.parent / "shared"
"""Tests that need this folder are skipped where it does not exist."""
WEIGHTS = SHARED / "weights" / "tf_efficientnet_lite0.safetensors"
