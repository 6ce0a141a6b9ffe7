"""Remembers which initial weights were found to fit their model.

The check builds the model, and loading torch and timm for it takes most of the time of `validate` on a small sweep.
Its answer cannot change while the content of the weights, the settings, the data and the code stay the same; these
make the key under which it is remembered. Nothing is remembered of weights that are known by name only.
"""

from __future__ import annotations

import contextlib
from importlib.metadata import version
from pathlib import Path

from goal_core.models.config import ModelConfig
from runners.execution.inputs import code_digest
from runners.store.storage import cache_folder
from sweeps import content_id, to_mapping

_BY_NAME = ("timm:", "hub:")
_LIBRARIES = ("torch", "timm", "transformers")


def check_key(model: ModelConfig, weights_id: str, data: object, fingerprint: str) -> str:
    """The key of a check: 16 hex digits, or an empty text if its answer may change by itself.

    Args:
        model: the model.
        weights_id: identifies the content of its initial weights.
        data: the data's settings.
        fingerprint: hash of the data.
    """
    if any(name in weights_id for name in _BY_NAME):
        return ""
    libraries = [version(name) for name in _LIBRARIES]
    return content_id([to_mapping(model), weights_id, to_mapping(data), fingerprint, code_digest(), libraries])


def was_checked(key: str) -> bool:
    """Whether a check with this key has passed on this machine."""
    return bool(key) and (_folder() / key).exists()


def remember(key: str) -> None:
    """Note that a check has passed. Where nothing can be written, the next command checks again."""
    if key:
        with contextlib.suppress(OSError):
            _folder().mkdir(parents=True, exist_ok=True)
            (_folder() / key).touch()


def _folder() -> Path:
    return cache_folder() / "weights-that-fit"
