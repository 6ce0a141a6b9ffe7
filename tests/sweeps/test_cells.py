import pickle

from goal_sweep.sweeps import ResolvedSweep


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
