import pytest

from goal_sweep.goal_core.objectives import pair_weights, triplet_weights
from goal_sweep.sweeps import SweepError, SweepObjectives, load_sweep

PAIRS, TRIPLETS = list(pair_weights), list(triplet_weights)


def test_parameters_go_to_the_objectives_that_have_them() -> None:
    objectives = SweepObjectives(pair=("con", "sig"), triplet=("con", "nca"), params={"tau": 5.0, "alpha": 3.0})
    given = {config.name: config.params for config in objectives.configs}
    assert given == {"con/con": {}, "con/nca": {"tau": 5.0}, "sig/con": {"alpha": 3.0},
                     "sig/nca": {"tau": 5.0, "alpha": 3.0}}  # fmt: skip


def test_batches_whose_statistics_count_are_not_split() -> None:
    with pytest.raises(SweepError, match="micro_batch: 32 cannot split batches"):
        load_sweep("f30k_vse_infty_butd", ["stages.frozen.micro_batch=32"], environ={})
    assert load_sweep("coco_vsepp", ["stages.frozen.micro_batch=32"], environ={}).stages[0].micro_batch == 32


def test_the_legacy_normalisation_is_vsepps_alone() -> None:
    with pytest.raises(SweepError, match=r"vsepp.*legacy_quirk|legacy_quirk.*vsepp"):
        load_sweep("coco_vse_infty_wsl", ["stages.finetune.bn_mode=legacy_quirk"], environ={})
