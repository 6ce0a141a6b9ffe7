"""The saved view of each block in MLflow: what it filters and groups by, in both forms in which MLflow reads it."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from goal_sweep.runners.tracking.views import filter_of
from mlflow.utils.search_utils import SearchUtils

from goal_sweep.goal_core.training import StageConfig
from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking import schema as names
from goal_sweep.runners.tracking.page import SweepPage
from tests.helpers.mlflow_cases import synced
from tests.helpers.sweep_cases import resolved

pytestmark = pytest.mark.integration
ONE = resolved("con/con", "sig/nca", seeds=(1, 2))
STAGES = (*ONE.config.stages, StageConfig(name="finetune", epochs=1, lr=0.1))
BOTH = replace(ONE, config=replace(ONE.config, stages=STAGES))


def views(page: SweepPage) -> dict[str, Any]:
    tags = page.client.get_experiment(page.experiment_id).tags
    return {key.removeprefix(names.VIEW): json.loads(text) for key, text in tags.items() if key.startswith(names.VIEW)}


def test_each_block_has_a_view_of_its_objectives_and_only_asked_blocks_have_one(uri: str, store: Store) -> None:
    synced(uri, store, BOTH, live=False)
    page = SweepPage(uri, "s")
    found = views(page)
    assert {key: view["name"] for key, view in found.items()} == {
        "1": "test_byobnet (frozen)",
        "2": "test_byobnet (finetune)",
    }
    view = found["2"]
    packed = view["state"].removeprefix("deflate;")
    state = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert view == {name: view[name] for name in ("name", "createdAt", "state")} | state
    assert "tags.`goal.role` = 'report' and tags.`goal.stage` = 'finetune'" in state["searchFilter"]
    assert [key["groupByData"] for key in state["groupBy"]["groupByKeys"]] == ["objective"]
    assert state["compareRunCharts"][0]["metricKey"] == "val/rsum"
    assert page.charts_at("http://h").endswith("/runs?workflowType=machine_learning&compareRunsMode=CHART"
                                               "&viewStateShareKey=goal-1")  # fmt: skip
    synced(uri, store, ONE, live=False)
    assert views(page).keys() == {"1"}


def test_a_name_with_quotes_leaves_the_filter_of_a_view_whole() -> None:
    text = filter_of({"goal.role": "report", "goal.dataset": "Ann's", "goal.backbone": 'a "b" c', "goal.x": "'\""})
    parsed = SearchUtils.parse_search_filter(text)
    assert {one["key"]: one["value"] for one in parsed} == {
        "goal.role": "report",
        "goal.dataset": "Ann's",
        "goal.backbone": 'a "b" c',
    }


def test_a_view_fits_into_a_tag_of_mlflow(uri: str, store: Store) -> None:
    synced(uri, store, ONE, live=False)
    (text,) = (json.dumps(view) for view in views(SweepPage(uri, "s")).values())
    assert len(text) + 1000 < 5000  # MLflow refuses longer ones; a block's names are in it twice
