import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from goal_sweep.goal_core.data.config import ScenesConfig
from goal_sweep.goal_core.models.config import BackboneConfig
from goal_sweep.goal_core.objectives import pair_weights, triplet_weights
from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.sweeps import ResolvedSweep, SweepConfig, SweepObjectives
from goal_sweep.sweeps.schema import SweepModel


def test_trainings_are_the_stages_of_every_cell_stage_by_stage(resolved: ResolvedSweep) -> None:
    cells, stages = resolved.cells, resolved.config.stages
    assert [(t.cell, t.stage) for t in resolved.trainings] == [(cell, stage) for stage in stages for cell in cells]
    assert {training.precision for training in resolved.trainings} == {"fp32"}
    frozen, finetune = resolved.by_stage
    assert {training.before for training in frozen} == {None}
    assert [training.before for training in finetune] == frozen
    assert finetune[0].stages == stages


def test_trainings_are_equal_when_their_keys_are(resolved: ResolvedSweep) -> None:
    first, second = resolved.trainings[:2]
    again = ResolvedSweep(config=resolved.config, data_fingerprint="f", weights=resolved.weights).trainings[0]
    assert again == first != second
    assert len({first, again, second}) == 2
    assert pickle.loads(pickle.dumps(resolved.trainings)) == resolved.trainings


def test_names(resolved: ResolvedSweep) -> None:
    frozen, finetune = ([t for t in stage if t.cell.objective.name == "sig-ms/cir"][-1] for stage in resolved.by_stage)
    assert frozen.name == "sig-ms/cir resnet18 seed 2 (frozen)"
    assert finetune.name == "sig-ms/cir resnet18 seed 2 (finetune)"
    assert frozen.cell.label == "sig-ms/cir resnet18 seed 2"
    assert frozen.blocks == (("scenes", "vsepp", "resnet18", "frozen", ""),)


@given(
    st.sets(st.integers(0, 1000), min_size=1, max_size=5),
    st.sets(st.sampled_from(["a", "b", "c"]), min_size=1),
    st.sets(st.sampled_from(list(pair_weights)), min_size=1),
    st.sets(st.sampled_from(list(triplet_weights)), min_size=1),
)
@settings(max_examples=30, deadline=None)
def test_count_is_the_product_and_ids_are_unique(
    seeds: set[int], backbones: set[str], pairs: set[str], triplets: set[str]
) -> None:
    config = SweepConfig(
        name="x",
        data=ScenesConfig(),
        model=SweepModel(backbones=tuple(BackboneConfig(name=name) for name in backbones)),
        objectives=SweepObjectives(pair=tuple(pairs), triplet=tuple(triplets)),
        seeds=tuple(seeds),
        stages=(StageConfig(name="frozen", epochs=1, lr=1.0),),
    )
    sweep = ResolvedSweep(config=config, data_fingerprint="f", weights=dict.fromkeys(backbones, "same"))
    assert len(sweep.cells) == len(seeds) * len(backbones) * len(pairs) * len(triplets)
    assert len({cell.id for cell in sweep.cells}) == len(set(sweep.trainings)) == len(sweep.cells)
