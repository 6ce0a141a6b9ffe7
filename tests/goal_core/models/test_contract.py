"""What every framework must keep to in every stage: its cells side by side are its cells alone, bit for bit; a killed
training ends as the unbroken one; and its checkpoint, evaluated again, repeats its result.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.data.config import DataConfig, EmbeddingsConfig, ImageConfig, PrecompConfig, RegionsConfig
from goal_sweep.goal_core.evaluation.evaluate import evaluate_ensemble, open_checkpoint
from goal_sweep.goal_core.models import ModelConfig, VectorsConfig
from goal_sweep.goal_core.training import StageConfig, UnitPlan
from goal_sweep.goal_core.training.cells import optim
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.region_files import write_regions
from tests.helpers.training_cases import (
    DATA,
    EMBEDDED,
    FINETUNE,
    FROZEN,
    GRID,
    GRID_DATA,
    MODEL,
    REGIONS,
    SET_FROZEN,
    STAGED,
    VECTORS,
    XVLM,
    XVLM_DATA,
    XVLM_STAGE,
    PlainFolder,
    folders_of,
    same_weights,
    train_killed,
    unit_of,
)

TWO = ("con/con", "sig-ms/cir")
THREE = (*TWO, "lin-ms/nca")
CROPPED = replace(DATA, image=ImageConfig(size=32, resize=32, augment="crop_flip"))
SHORT = replace(FROZEN, epochs=1, warmup_epochs=0, lr_drops=())
QUIRK = replace(FROZEN, bn_mode="legacy_quirk", epochs=2, warmup_epochs=0, lr_drops=())


@dataclass(frozen=True)
class Case:
    """One stage of a framework."""

    model: ModelConfig
    data: DataConfig | None
    """None: the tiny regions, or for VSE++ the tiny vectors."""
    stage: StageConfig
    killed: tuple[tuple[int, ...], ...]
    """Each a training that is killed, and again after it has resumed, after these numbers of steps."""
    before: StageConfig | None = None
    """The stage whose best weights this one starts from."""
    objectives: tuple[str, ...] = TWO


CASES = {
    "vsepp": Case(MODEL, DATA, FROZEN, ((1,), (4,), (5,), (7,), (10,), (14,)), objectives=THREE),
    "vsepp cropped": Case(MODEL, CROPPED, FROZEN, ((4,),)),
    "vsepp finetuned": Case(MODEL, DATA, FINETUNE, ((7,),), before=SHORT),
    "vsepp cropped finetuned": Case(MODEL, CROPPED, FINETUNE, ()),
    "vsepp legacy": Case(MODEL, DATA, QUIRK, ((4,),)),
    "vsepp legacy finetuned": Case(MODEL, DATA, replace(FINETUNE, bn_mode="legacy_quirk"), ((3, 4),), before=QUIRK),
    "vsepp vectors": Case(VECTORS, None, FROZEN, ((1,), (7,))),
    "vectors": Case(EMBEDDED, None, FROZEN, ((1,), (7,)), objectives=THREE),
    "vectors, no head for images": Case(
        replace(EMBEDDED, embed_dim=7, vectors=VectorsConfig(image_head="none")), None, FROZEN, ((7,),)
    ),
    "vse_infty regions": Case(REGIONS, None, SET_FROZEN, ((1,), (3,))),
    "vse_infty grid": Case(GRID, GRID_DATA, SET_FROZEN, ((3,),)),
    "vse_infty grid finetuned": Case(GRID, GRID_DATA, STAGED, ((3,), (5,)), before=SET_FROZEN),
    "xvlm": Case(XVLM, XVLM_DATA, XVLM_STAGE, ((3,), (3, 2))),
}
COSTLY = (
    *("vsepp cropped finetuned", "vsepp legacy finetuned", "vse_infty grid finetuned"),
    *("vsepp cropped", "vsepp legacy", "vectors, no head for images", "vse_infty regions"),
)
"""Cases whose parts other cases have too."""
EACH = [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in COSTLY)) for name in CASES]
KILLED = [
    pytest.param(name, stops, id=f"{name}-{stops}", marks=[pytest.mark.exhaustive] * (name in COSTLY or number > 0))
    for name, case in CASES.items()
    for number, stops in enumerate(case.killed)
]


@dataclass(frozen=True)
class Trained:
    """A case whose objectives have been trained side by side, without a break."""

    unit: Callable[..., UnitPlan]
    """The unit of some of its objectives."""
    folders: dict[str, PlainFolder]


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> RegionsConfig:
    """Eight images to train on, six to select and to test on, five regions each, five captions each."""
    counts = {"train": 8, "dev": 6, "test": 6}
    root = write_regions(tmp_path_factory.mktemp("regions"), shape=(5, 7), counts=counts)
    return RegionsConfig(name="tiny", root=str(root), min_word_count=1)


@pytest.fixture(scope="module")
def vectors(regions: RegionsConfig, tmp_path_factory: pytest.TempPathFactory) -> PrecompConfig:
    """The same images with one vector each."""
    root = tmp_path_factory.mktemp("vectors")
    for path in Path(regions.root).glob("*.txt"):
        (root / path.name).write_bytes(path.read_bytes())
    for path in Path(regions.root).glob("*.npy"):
        np.save(root / path.name, np.load(path).mean(axis=1).astype(np.float16))
    return PrecompConfig(name="tiny", root=str(root), min_word_count=1)


@pytest.fixture(scope="module")
def embeddings(regions: RegionsConfig, tmp_path_factory: pytest.TempPathFactory) -> EmbeddingsConfig:
    """The same images with a vector for each of their captions, too."""
    root, draws = tmp_path_factory.mktemp("embeddings"), np.random.default_rng(1)
    for path in Path(regions.root).glob("*.npy"):
        split, images = path.name.partition("_")[0].replace("dev", "val"), np.load(path).mean(axis=1)
        np.save(root / f"{split}_images.npy", images.astype(np.float32))
        near = images.repeat(5, axis=0) @ draws.normal(size=(7, 9)) + draws.normal(size=(5 * len(images), 9))
        np.save(root / f"{split}_texts.npy", near.astype(np.float16))
    return EmbeddingsConfig(name="tiny", root=str(root))


@pytest.fixture(scope="module", autouse=True)
def published_validation_within_an_epoch() -> Iterator[None]:
    """An epoch has five steps here, and VSE++'s published code would validate after 500."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optim, "VALIDATED_EVERY", 3)
        yield


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory,
    regions: RegionsConfig,
    vectors: PrecompConfig,
    embeddings: EmbeddingsConfig,
) -> Callable[[str], Trained]:
    @cache
    def train(name: str) -> Trained:
        case, root = CASES[name], tmp_path_factory.mktemp("unbroken")
        features = {"vsepp": vectors, "vectors": embeddings}.get(case.model.framework, regions)
        settings: dict[str, Any] = {"model": case.model, "data": case.data or features}
        init: dict[str, Path] = {}
        if case.before is not None:
            before = unit_of(*case.objectives, stage=case.before, **settings)
            train_unit(before, folders := folders_of(before, root / "before"))
            init = {key: folder.best() for key, folder in folders.items()}
        stage = replace(case.stage, checkpoint_every=2)

        def unit(*objectives: str) -> UnitPlan:
            return unit_of(*objectives, stage=stage, init=init, **settings)

        folders = folders_of(unit(*case.objectives), root / "stage")
        train_unit(unit(*case.objectives), folders)
        return Trained(unit, folders)

    return train


@pytest.mark.parametrize("name", EACH)
def test_cells_alone_equal_cells_side_by_side(name: str, trained: Callable[[str], Trained], tmp_path: Path) -> None:
    shared = trained(name)
    assert len({json.dumps(folder.numbers()) for folder in shared.folders.values()}) == len(shared.folders)
    for objective in CASES[name].objectives:
        unit = shared.unit(objective)
        train_unit(unit, folders := folders_of(unit, tmp_path))
        for key, folder in folders.items():
            assert folder.numbers() == shared.folders[key].numbers()
            assert same_weights(folder, shared.folders[key])


@pytest.mark.parametrize(("name", "stops"), KILLED)
def test_resumed_equals_unbroken(
    name: str, stops: tuple[int, ...], trained: Callable[[str], Trained], tmp_path: Path
) -> None:
    unbroken = trained(name)
    unit = unbroken.unit(*(TWO if name == "vsepp" else TWO[1:]))
    train_killed(unit, folders := folders_of(unit, tmp_path), *stops)
    for key, folder in folders.items():
        assert folder.numbers() == unbroken.folders[key].numbers()
        assert same_weights(folder, unbroken.folders[key])


@pytest.mark.parametrize("name", EACH)
def test_a_checkpoint_evaluated_again_repeats_the_result(name: str, trained: Callable[[str], Trained]) -> None:
    for folder in trained(name).folders.values():
        assert open_checkpoint(folder.root).evaluate()["metrics"] == folder.result()


def test_xvlm_reports_its_matching_and_both_rankings(trained: Callable[[str], Trained]) -> None:
    folders = trained("xvlm").folders
    for folder in folders.values():
        assert {"test/rsum", "test_embed/rsum"} <= folder.result().keys()
        assert {"train/itm", "train/itm_accuracy"} <= folder.numbers()[0].keys()
        assert not any(key.startswith("val_embed") for row in folder.numbers() for key in row)
    with pytest.raises(ConfigError, match="re-ranks"):
        evaluate_ensemble(map(open_checkpoint, [folder.root for folder in folders.values()]))
