"""Settings that differ are named, and a selection on test is said under every table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import aggregate, fetch_runs
from analysis.report.sections import flaw_notes, settings_notes, settings_section, stacked_notes
from tests.helpers.analysis_cases import SweepWriter, with_params
from tests.helpers.blank_figures import write_texts

pytestmark = pytest.mark.integration


def test_differing_settings_are_named_with_their_seeds(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("mixed settings")
    writer.write_parent(seeds=[1, 2, 3], objectives=["con/con"])
    for seed, lr in ((1, "0.001"), (2, "0.001"), (3, "0.002")):
        run_id = writer.write("con/con", seed)
        margin = "0.3" if seed == 1 else "0.2"
        with_params(writer, run_id, stages__frozen__lr=lr, model__embed_dim="64", seed=str(seed))
        with_params(writer, run_id, objective__margin=margin, objective__pair="con")
    sweep = fetch_runs(writer.uri, writer.name)
    blocks = aggregate(sweep)
    (note,) = settings_notes(sweep, blocks)
    assert "differ in their settings: stages.frozen.lr (0.001: seeds 1, 2; 0.002: seed 3)" in note
    assert "con/con objective.margin (0.2: seeds 2, 3; 0.3: seed 1)" in note
    section = settings_section(sweep, blocks)
    assert section is not None
    rows = {row for table in section.tables for row in table.rows}
    assert {("model.embed_dim", "64"), ("stages.frozen.lr", "0.001, 0.002"), ("con/con", "margin 0.2, 0.3")} <= rows


def test_trainings_below_their_own_warm_up_are_named(new_sweep: Callable[[str], SweepWriter], tmp_path: Path) -> None:
    writer = new_sweep("below the warm-up")
    writer.write_parent(seeds=[1, 2], objectives=["con/con", "sig/cir"])
    for objective, seed in (("con/con", 1), ("sig/cir", 1), ("sig/cir", 2)):
        writer.write(objective, seed, **({"below_warmup": "val rsum 60 ..."} if objective == "sig/cir" else {}))
    writer.write("con/con", 2, status="failed", below_warmup="does not count")
    sweep = fetch_runs(writer.uri, writer.name)
    (note,) = flaw_notes(sweep, aggregate(sweep))
    assert note.startswith("BELOW THE WARM-UP: 2 of 3 trainings of MS-COCO, VSE++ (resnet152), stage frozen reached")
    assert note.endswith(": sig/cir (seeds 1, 2).")
    assert note in (write_texts(writer.uri, writer.name, tmp_path).out_dir / "report.md").read_text()


def test_trainings_whose_objective_was_weak_beside_matching_are_named(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("weak")
    writer.write_parent(seeds=[1], objectives=["con/con", "sig-ms/cir"])
    writer.write("con/con", 1)
    writer.write("sig-ms/cir", 1, weak_objective="its gradient was below 1 % ...")
    sweep = fetch_runs(writer.uri, writer.name)
    (note,) = flaw_notes(sweep, aggregate(sweep))
    assert note.startswith(
        "WEAK OBJECTIVE: in 1 of 2 trainings of MS-COCO, VSE++ (resnet152), stage frozen the objective"
    )
    assert note.endswith(": sig-ms/cir (seed 1).")


def test_a_block_of_stacked_and_single_heads_says_so(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("mixed heads")
    writer.write_parent(seeds=[1, 2], objectives=["con/con", "sig/cir"])
    for objective, seed, tags in (
        ("con/con", 1, {"stacked": "1"}),
        ("con/con", 2, {"stacked": "0.5"}),
        ("sig/cir", 1, {}),
    ):
        with_params(writer, writer.write(objective, seed, **tags), stages__frozen__lr="0.1")
    sweep = fetch_runs(writer.uri, writer.name)
    blocks = aggregate(sweep)
    (note,) = stacked_notes(sweep, blocks)
    assert "the heads of 1 of 3 trainings were stacked in every step, and those of 1 in some" in note
    section = settings_section(sweep, blocks)
    assert section is not None
    assert "In 2 of 3 trainings the heads trained as a stack" in section.paragraphs[0]


def test_blocks_of_one_kind_of_heads_need_no_note(new_sweep: Callable[[str], SweepWriter]) -> None:
    for name, tags in (("all", {"stacked": "1"}), ("none", {})):
        writer = new_sweep(name)
        writer.write_parent(seeds=[1, 2], objectives=["con/con"])
        for seed in (1, 2):
            writer.write("con/con", seed, **tags)
        sweep = fetch_runs(writer.uri, writer.name)
        assert stacked_notes(sweep, aggregate(sweep)) == []


def test_the_settings_of_other_stages_are_not_listed(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("two stages")
    writer.write_parent(seeds=[1], objectives=["con/con"], **{"goal.stages": '["frozen", "finetune"]'})
    with_params(writer, writer.write("con/con", 1), stages__frozen__lr="0.1")
    with_params(writer, writer.write("con/con", 1, "finetune"), stages__frozen__lr="0.1", stages__finetune__lr="0.2")
    sweep = fetch_runs(writer.uri, writer.name)
    blocks = aggregate(sweep)
    section = settings_section(sweep, blocks)
    assert section is not None
    titles = {table.title: table.rows for table in section.tables}
    assert titles == {
        blocks[0].key.title: (("stages.frozen.lr", "0.1"),),
        blocks[1].key.title: (("stages.finetune.lr", "0.2"),),
    } | {"Parameters of the objectives": (("con/con", "none"),)}


@pytest.mark.parametrize("split", ["val", "test"])
def test_selection_on_test_stands_under_every_table(new_sweep: Callable[[str], SweepWriter], split: str) -> None:
    writer = new_sweep(f"selected on {split}")
    writer.write_parent(seeds=[1], objectives=["con/con"])
    with_params(writer, writer.write("con/con", 1), stages__frozen__select_on=split)
    (block,) = aggregate(fetch_runs(writer.uri, writer.name))
    assert f"(selection split: {split})" in block.protocol
    assert ("SELECTED ON TEST" in block.protocol) == (split == "test")


@pytest.mark.parametrize("views", ["", "8"])
def test_few_augmented_views_stand_under_every_table(new_sweep: Callable[[str], SweepWriter], views: str) -> None:
    writer = new_sweep(f"views {views}")
    writer.write_parent(seeds=[1], objectives=["con/con"])
    given = {"stages__frozen__feature_views": views} if views else {}
    with_params(writer, writer.write("con/con", 1), stages__frozen__lr="0.1", **given)
    (block,) = aggregate(fetch_runs(writer.uri, writer.name))
    assert ("FEW AUGMENTED VIEWS" in block.protocol) == bool(views)
    assert ("(frozen 8)" in block.protocol) == bool(views)


def test_a_stage_that_starts_from_a_selection_on_test_says_so(
    new_sweep: Callable[[str], SweepWriter], tmp_path: Path
) -> None:
    writer = new_sweep("started on test")
    writer.write_parent(seeds=[1], objectives=["con/con"], **{"goal.stages": '["frozen", "finetune"]'})
    with_params(writer, writer.write("con/con", 1), stages__frozen__select_on="test")
    with_params(writer, writer.write("con/con", 1, stage="finetune"), stages__frozen__select_on="test")
    first, second = aggregate(fetch_runs(writer.uri, writer.name))
    assert first.protocol.count("SELECTED ON TEST") == 1
    assert "STARTED FROM A SELECTION ON TEST: each model started from the epoch of stage frozen" in second.protocol
    text = (write_texts(writer.uri, writer.name, tmp_path).out_dir / "report.md").read_text()
    assert "SELECTED ON TEST, directly or in an earlier stage: MS-COCO, VSE++ (resnet152), stage frozen; " in text
    assert "Such numbers are optimistic; compare them only with work that selects in the same way." in text


def test_only_a_key_differing_is_a_warning_too(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("keys alone")
    writer.write_parent(seeds=[1, 2], objectives=["con/con"])
    writer.write("con/con", 1, settings_key="a")
    writer.write("con/con", 2, settings_key="b")
    sweep = fetch_runs(writer.uri, writer.name)
    (note,) = settings_notes(sweep, aggregate(sweep))
    assert "goal.settings_key (a, b)" in note
    assert settings_section(sweep, aggregate(sweep)) is None


def test_a_parameter_that_runs_of_one_key_record_or_not_is_no_difference(
    new_sweep: Callable[[str], SweepWriter],
) -> None:
    writer = new_sweep("recorded later")
    writer.write_parent(seeds=[1, 2, 3], objectives=["con/con"])
    keys = {"settings_key": "a", "objective_key": "m"}
    older = writer.write("con/con", 1, **keys)
    with_params(writer, older, model__embed_dim="64")
    for seed in (2, 3):
        run_id = writer.write("con/con", seed, **keys)
        with_params(writer, run_id, model__embed_dim="64", model__vocabulary="train_val", objective__margin="0.2")
    sweep = fetch_runs(writer.uri, writer.name)
    assert settings_notes(sweep, aggregate(sweep)) == []
    section = settings_section(sweep, aggregate(sweep))
    assert section is not None
    rows = {row for table in section.tables for row in table.rows}
    assert {("model.vocabulary", "train_val"), ("con/con", "margin 0.2")} <= rows


def test_a_parameter_that_only_runs_of_another_key_record_is_a_difference(
    new_sweep: Callable[[str], SweepWriter],
) -> None:
    writer = new_sweep("recorded by another key")
    writer.write_parent(seeds=[1, 2, 3], objectives=["con/con"])
    with_params(writer, writer.write("con/con", 1, settings_key="a"), model__embed_dim="64")
    with_params(writer, writer.write("con/con", 2, settings_key="b"), model__vocabulary="train")
    writer.write("con/con", 3, settings_key="b")
    sweep = fetch_runs(writer.uri, writer.name)
    (note,) = settings_notes(sweep, aggregate(sweep))
    assert "model.vocabulary (not recorded: seed 1; train: seeds 2, 3)" in note
