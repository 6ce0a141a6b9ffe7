"""Files that are others for the time of one read."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def swapped_link(monkeypatch: pytest.MonkeyPatch, link: Path, other: Path, owner: Any, reader: str) -> None:
    """Let a link lead elsewhere while a function of an owner, or `open` in a module, runs, and back at once."""
    read, right = getattr(owner, reader, None) or getattr(builtins, reader), link.readlink()

    def point(target: Path) -> None:
        link.unlink()
        link.symlink_to(target)

    def elsewhere(*given: Any, **options: Any) -> Any:
        point(other)
        try:
            return read(*given, **options)
        finally:
            point(right)

    monkeypatch.setattr(owner, reader, elsewhere, raising=False)
