"""Paths of a sweep, made absolute once so that every process means the same file."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from goal_core.models.backbones import NAMED_WEIGHTS
from goal_core.models.config import BackboneConfig, BertConfig
from sweeps.schema import SweepConfig


def make_absolute(config: SweepConfig) -> SweepConfig:
    """The sweep with absolute paths, and with the store's folder in place of `{store}` in `tracking`.

    Relative paths start at the current directory, wherever the sweep file lies; `~` is the home directory. URIs
    (`s3://...`) stay as they are, and so does `data.annotations`, which is relative to `data.root`.
    """
    data = config.data
    if data.root is not None:
        data = data.with_root(_absolute(data.root))
    store = _absolute(config.store)
    return replace(
        config,
        data=data,
        model=replace(
            config.model,
            backbones=tuple(map(_absolute_weights, config.model.backbones)),
            bert=_absolute_bert(config.model.bert),
            init_from=_absolute(config.model.init_from) if config.model.init_from else "",
        ),
        store=store,
        tracking=_absolute_tracking(config.tracking.replace("{store}", store)),
    )


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def _absolute_weights(backbone: BackboneConfig) -> BackboneConfig:
    if backbone.weights in NAMED_WEIGHTS:
        return backbone
    return replace(backbone, weights=_absolute(backbone.weights))


def _absolute_bert(bert: BertConfig) -> BertConfig:
    """A folder as an absolute one; `random` and names on the hub unchanged."""
    folder = os.path.expanduser(bert.weights)
    return replace(bert, weights=_absolute(folder)) if os.path.isdir(folder) else bert


def _absolute_tracking(uri: str) -> str:
    """A SQLite file or a folder as an absolute one; names such as `databricks` and other URIs unchanged."""
    sqlite = re.fullmatch(r"sqlite:///(?!/)(.+)", uri)
    if sqlite:
        return f"sqlite:///{_absolute(sqlite.group(1))}"
    return _absolute(uri) if "/" in uri or uri.startswith((".", "~")) else uri
