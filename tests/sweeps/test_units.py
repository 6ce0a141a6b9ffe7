import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goal_sweep.goal_core.objectives import pair_weights, triplet_weights
from goal_sweep.sweeps import ResolvedSweep, Training, load_sweep, pack
from goal_sweep.sweeps.cells import unopened
from goal_sweep.sweeps.schema import ExecutionConfig

TRUNK = ExecutionConfig(sharing="trunk")
NUM_OBJECTIVES = len(pair_weights) * len(triplet_weights)


@pytest.fixture
def frozen(resolved: ResolvedSweep) -> list[Training]:
    return resolved.by_stage[0]


def test_trunk_brings_together_what_differs_in_objective_only(frozen: list[Training]) -> None:
    units = pack(frozen, TRUNK)
    assert [len(unit.trainings) for unit in units] == [NUM_OBJECTIVES] * 4
    cells = [unit.trainings[0].cell for unit in units]
    assert [(cell.model.backbone.name, cell.seed) for cell in cells] == [
        ("resnet10t", 1),
        ("resnet10t", 2),
        ("resnet18", 1),
        ("resnet18", 2),
    ]
    for unit in units:
        assert len({(one.cell.data, one.cell.model, one.cell.seed) for one in unit.trainings}) == 1
    assert units[3].label == f"resnet18 seed 2 (frozen), {NUM_OBJECTIVES} objectives"
    assert units[0].stage.name == "frozen"


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [(0, [15]), (20, [15]), (15, [15]), (8, [8, 7]), (7, [5, 5, 5]), (4, [4, 4, 4, 3]), (1, [1] * 15)],
)
def test_sizes_are_balanced(frozen: list[Training], limit: int, sizes: list[int]) -> None:
    units = pack(frozen[:15], ExecutionConfig(sharing="trunk", cells_per_unit=limit))
    assert [len(unit.trainings) for unit in units] == sizes
    assert [training for unit in units for training in unit.trainings] == frozen[:15]


@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_training_is_in_exactly_one_unit(frozen: list[Training], data: st.DataObject) -> None:
    todo = data.draw(st.lists(st.sampled_from(frozen), unique=True))
    limit = data.draw(st.integers(0, 16))
    units = pack(todo, ExecutionConfig(sharing="trunk", cells_per_unit=limit))
    assert sorted(one.key for unit in units for one in unit.trainings) == sorted(one.key for one in todo)
    for unit in units:
        assert 1 <= len(unit.trainings) <= (limit or NUM_OBJECTIVES)
        assert len({(one.cell.model, one.cell.seed) for one in unit.trainings}) == 1


@pytest.mark.parametrize(
    ("overrides", "are_shared"),
    [
        (["data.image.augment=none"], True),
        (["data.image.augment=none", "stages.frozen.bn_mode=legacy_quirk"], False),
        ([], False),
    ],
)
def test_features_that_are_the_same_in_every_epoch_are_those_of_the_weights(overrides: list[str], are_shared: bool):
    for source, seeds in (("timm", ("", "")), ("random", (" seed 1", " seed 2"))):
        backbone = f"model.backbones=[{{name: resnet152, weights: {source}}}]"
        config = load_sweep("coco_vsepp", [*overrides, backbone, "seeds=[1, 2]"], environ={})
        frozen, finetune = (pack(stage, config.execution) for stage in unopened(config).by_stage)
        features = [" ".join(unit.features.split()) for unit in frozen]
        assert features == [f"resnet152 {source}{seed}" if are_shared else "" for seed in seeds]
        assert not any(unit.features for unit in finetune)
        assert frozen[0].kind == (config.model.models[0], "frozen")
