"""Where the checkout is, and the real data that may lie beside it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
"""Tests that use it skip themselves where it is not there."""
EMOJI = SHARED / "data" / "emoji"
