"""A saved view of each block in MLflow's page: curves and bars of all its objectives, with bands for the seeds.

MLflow keeps such a view in a tag of the experiment: its name and the state of the page, of which it takes the fields
that it knows. Before 3.17 it read the fields beside the name.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

from goal_sweep.runners.results import ResultsTable
from goal_sweep.runners.tracking import schema as names
from goal_sweep.runners.tracking.means import BLOCK, block_of, title_of

_SECTION: Final = "objectives"
_CURVES, _BARS = ("val/rsum", "train/hinge"), ("test/i2t_r1", "test/t2i_r1")
_CURVE: Final = {
    "type": "LINE", "xAxisKey": "step", "selectedXAxisMetricKey": "", "lineSmoothness": 0, "scaleType": "linear",
    "xAxisScaleType": "linear", "range": {}, "useGlobalXaxisKey": True, "useGlobalLineSmoothing": True,
}  # fmt: skip
_PAGE: Final = {
    "orderByKey": f"params.`{names.OBJECTIVE}`", "orderByAsc": True, "startTime": "ALL", "lifecycleFilter": "Active",
    "modelVersionFilter": "All Runs", "datasetsFilter": [],
    "selectedColumns": [f"metrics.`{name}`" for name in _BARS], "runsExpanded": {},
    "runsPinned": [], "runsHidden": [], "runsHiddenMode": "SHOW_ALL", "groupsExpanded": {},
    "groupBy": {
        "aggregateFunction": "average", "groupByKeys": [{"mode": "param", "groupByData": names.OBJECTIVE}]
    },
    "isAccordionReordered": True,
    "compareRunSections": [
        {"uuid": _SECTION, "name": "Objectives", "display": True, "isReordered": True, "columns": 2, "cardHeight": 420}
    ],
    "compareRunCharts": [
        {**kind, "uuid": name, "metricKey": name, "selectedMetricKeys": [name], "metricSectionId": _SECTION}
        for kind, charts in ((_CURVE, _CURVES), ({"type": "BAR"}, _BARS)) for name in charts
    ],
}  # fmt: skip


def views_of(table: ResultsTable) -> dict[str, str]:
    """The tags of a sweep's experiment that are the views of its blocks, in the order of its results table."""
    blocks = {tuple(block_of(row).items()): row for row in table.rows((*BLOCK, "role")) if row["role"] == "report"}
    return {f"{names.VIEW}{number}": _view(row) for number, row in enumerate(blocks.values(), 1)}


def filter_of(tags: Mapping[str, str]) -> str:
    """MLflow's filter for runs with these tags. It has no escapes, so one with both kinds of quotes is left out."""
    quotes = {value: next((quote for quote in "'\"" if quote not in value), "") for value in tags.values()}
    return " and ".join(f"tags.`{t}` = {quotes[v]}{v}{quotes[v]}" for t, v in tags.items() if quotes[v])


def _view(row: Mapping[str, Any]) -> str:
    tags = {names.ROLE: "report"} | block_of(row)
    state = {"searchFilter": filter_of(tags), **_PAGE}
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    named = {"name": title_of(row), "createdAt": 0, "state": f"deflate;{packed}"}
    return json.dumps({**named, **state}, ensure_ascii=False, separators=(",", ":"))
