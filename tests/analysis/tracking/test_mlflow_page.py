"""What MLflow's own page says of a sweep: the answer in words, and saved views that group by objective."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from analysis import aggregate, refresh_summary
from analysis.tracking import fetch_runs, publish_summary
from analysis.tracking.mlflow_page import headline
from tests.helpers.analysis_cases import SweepWriter, example, recalls

pytestmark = pytest.mark.integration
NOTE = "mlflow.note.content"


def small(new_sweep: Callable[[str], SweepWriter], name: str, seeds: tuple[int, ...] = (1, 2, 3)) -> SweepWriter:
    writer = new_sweep(name)
    writer.write_parent(seeds=seeds, objectives=["con/con", "sig/cir"])
    for seed in seeds:
        writer.write("con/con", seed)
        writer.write("sig/cir", seed, metrics=recalls("con/con", seed, shift=2))
    return writer


def test_the_description_says_who_won_by_how_much(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = small(new_sweep, "told")
    refresh_summary(writer.uri, "told")
    experiment = writer.client.get_experiment(writer.experiment_id)
    short = experiment.tags[NOTE]
    assert "highest rsum **sig/cir** 342.0 ± 1.8, +12.0 over con/con 330.0 ± 1.8" in short
    assert "within noise" not in short
    assert f"(#/experiments/{writer.experiment_id}/runs?viewStateShareKey=goal-coco-vsepp-resnet152-frozen)" in short
    full = writer.client.get_run(str(writer.parent)).data.tags[NOTE]
    assert full.startswith(short)
    assert "| 1 | sig/cir | 342.0 ± 1.8 | 42.0 ± 0.3 | 32.0 ± 0.3 | 3 |" in full


def test_a_saved_view_groups_by_objective_and_orders_by_rsum(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = small(new_sweep, "view")
    refresh_summary(writer.uri, "view")
    tags = writer.client.get_experiment(writer.experiment_id).tags
    kind, packed = tags["mlflow.sharedViewState.goal-coco-vsepp-resnet152-frozen"].split(";")
    assert kind == "deflate"
    state = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "goal.objective"}]
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`test/rsum`", False)
    found = writer.client.search_runs([writer.experiment_id], state["searchFilter"], order_by=[state["orderByKey"]])
    assert len(found) == 6  # what the page asks for is valid


def test_a_description_longer_than_mlflow_takes_is_cut_at_a_block_and_says_so(
    new_sweep: Callable[[str], SweepWriter],
) -> None:
    writer = new_sweep("long")
    writer.write_parent()
    blocks = [replace(example(), key=replace(example().key, backbone=f"backbone{number}")) for number in range(30)]

    def description(number: int) -> str:
        publish_summary(writer.uri, str(writer.parent), "long", blocks[:number])
        return writer.client.get_experiment(writer.experiment_id).tags[NOTE]

    whole = description(5)
    assert whole.startswith("**long**\n\n")
    assert whole.count("highest rsum") == 5
    assert "more in the report" not in whole
    cut = description(30)
    shown = cut.count("highest rsum")
    assert 5 < shown < 30
    assert cut.endswith(f"{30 - shown} more in the report among the run's artifacts.")
    assert len(cut) <= 5000


def test_what_a_person_wrote_stays(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = small(new_sweep, "mine")
    refresh_summary(writer.uri, "mine")
    writer.client.set_experiment_tag(writer.experiment_id, NOTE, "my own words")
    writer.write("con/con", 4)
    refresh_summary(writer.uri, "mine")
    assert writer.client.get_experiment(writer.experiment_id).tags[NOTE] == "my own words"


def test_it_claims_no_more_than_the_seeds_hold(
    new_sweep: Callable[[str], SweepWriter], complete_sweep: SweepWriter
) -> None:
    one = small(new_sweep, "one seed", seeds=(1,))
    (block,) = aggregate(fetch_runs(one.uri, "one seed"))
    assert headline(block).endswith("(too few seeds to know the spread)")
    complete = aggregate(fetch_runs(complete_sweep.uri, "complete"))[0]
    assert "highest rsum **sig-ms/cir**" in headline(complete)
    bare = new_sweep("bare")
    bare.write_parent(seeds=[1], objectives=["con/con"])
    bare.write("con/con", 1, status="failed", metrics={})
    sweep = fetch_runs(bare.uri, "bare")
    assert headline(aggregate(sweep)[0]) == "nothing finished; 1 missing"
    publish_summary(bare.uri, str(bare.parent), "bare", aggregate(sweep))
    close = new_sweep("close")
    close.write_parent(seeds=[1, 2, 3], objectives=["con/con", "sig/cir"])
    for seed in (1, 2, 3):
        close.write("con/con", seed)
        close.write("sig/cir", seed, metrics=recalls("con/con", seed, shift=0.1 + (seed - 2) * 0.4))
    (block,) = aggregate(fetch_runs(close.uri, "close"))
    assert "(within noise)" in headline(block)
