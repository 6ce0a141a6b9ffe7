"""A pickle can run any program. None is unpickled, be it in a store, a checkpoint, a cache, a dataset."""

import ast
import io
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from goal_sweep.analysis.statistics.comparison import image_scores
from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.files import read_columns, read_json
from goal_sweep.goal_core.checkpoints.file import read_checkpoint, read_model, read_of_training
from goal_sweep.goal_core.data.config import RegionsConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.models import BackboneConfig, BertConfig
from goal_sweep.goal_core.models.backbones import build_backbone
from goal_sweep.goal_core.models.hub import build_bert
from goal_sweep.goal_core.official.convert import read_torch_file, read_vocabulary
from goal_sweep.runners.store.store import Store
from goal_sweep.sweeps import load_sweep
from tests.helpers.paths import ROOT
from tests.helpers.region_files import write_regions
from tests.helpers.store_cases import claimed, named, train

PACKAGES = ("analysis", "goal_core", "goal_sweep", "runners", "sweeps")


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.mark,)


def plain(bomb: Bomb) -> bytes:
    return pickle.dumps(bomb)


def of_torch(bomb: Bomb) -> bytes:
    file = io.BytesIO()
    torch.save({"state_dict": bomb}, file)
    return file.getvalue()


def of_old_torch(bomb: Bomb) -> bytes:
    file = io.BytesIO()
    torch.save({"state_dict": bomb}, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def of_numpy(bomb: Bomb) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([bomb], dtype=object))
    return file.getvalue()


def of_numpy_zip(bomb: Bomb) -> bytes:
    file = io.BytesIO()
    keys = ("i2t", "t2i", "captions")
    arrays: dict[str, Any] = {key: np.array([bomb], dtype=object) for key in keys}
    np.savez(file, **arrays)
    return file.getvalue()


KINDS = (plain, of_torch, of_old_torch, of_numpy, of_numpy_zip)


def region_dataset(path: Path) -> Any:
    root = write_regions(path.parent / "regions")
    path.rename(root / "train_ims.npy")
    return open_dataset(RegionsConfig(name="tiny", root=str(root))).splits["train"].load_regions(np.arange(2))


def result_of_a_store(path: Path) -> Any:
    folder = train(claimed(Store(path.parent / "store").folder(named("c" * 16))))
    (result,) = (path.parent / "store").rglob("result.json")
    path.rename(result)
    return folder.result()


def bert(path: Path) -> Any:
    folder = path.parent / "bert"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert", "hidden_size": 8, "num_attention_heads": 1}')
    path.rename(folder / "pytorch_model.bin")
    return build_bert(BertConfig(weights=str(folder)), vocab_size=10)


def weights(suffix: str) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        named = path.rename(path.with_suffix(suffix))
        return build_backbone(BackboneConfig(name="test_resnet", weights=str(named)), image_size=32, seed=0)

    return read


READERS: dict[str, Callable[[Path], Any]] = {
    "a state of the store": read_checkpoint,
    "a state of a training": lambda path: read_of_training(path, "k" * 16),
    "a cache": read_columns,
    "a checkpoint to evaluate": read_model,
    "a result of the store": result_of_a_store,
    "a record of the store": read_json,
    "the ranks in a results table": lambda path: image_scores(path.read_bytes()),
    "weights of torch": weights(".pth"),
    "weights of safetensors": weights(".safetensors"),
    "a folder of BERT": bert,
    "a published checkpoint": read_torch_file,
    "a published vocabulary": read_vocabulary,
    "a dataset's regions": region_dataset,
    "a sweep file": load_sweep,
}


@pytest.mark.parametrize("kind", KINDS)
def test_these_pickles_do_run(tmp_path: Path, kind: Callable[[Bomb], bytes]) -> None:
    """Or else the tests below would show nothing."""
    content = kind(Bomb(tmp_path / "ran"))
    if kind is plain:
        pickle.loads(content)
    elif kind in (of_torch, of_old_torch):
        torch.load(io.BytesIO(content), weights_only=False)
    else:
        stored = np.load(io.BytesIO(content), allow_pickle=True)
        stored["i2t"] if kind is of_numpy_zip else stored  # the zip unpickles what is asked for
    assert (tmp_path / "ran").is_dir()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", READERS)
def test_a_pickle_in_this_place_is_refused_and_not_run(tmp_path: Path, place: str, kind: Callable[[Bomb], bytes]):
    path = tmp_path / "file"
    path.write_bytes(kind(Bomb(tmp_path / "ran")))
    with pytest.raises((GoalError, DamagedError, ValueError, KeyError)):
        READERS[place](path)
    assert not (tmp_path / "ran").exists()


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call in the packages, as ``file: function``."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield f"{path.relative_to(ROOT)}: {ast.unparse(node.func)}", node


def test_no_other_call_can_unpickle() -> None:
    """The places above are all there are: whatever can unpickle says that it must not, or is the reader with a list.

    Plugins run because their user names them.
    """
    found = []
    for where, call in calls():
        function = where.rpartition(" ")[2]
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if function == "torch.load" and given.get("weights_only") != "True":
            found.append(where)
        if function in ("np.load", "npy.read_array") and given.get("allow_pickle", "False") != "False":
            found.append(where)
        if function.split(".")[-1] in ("Unpickler", "_VocabularyUnpickler") or function in (
            *("pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads", "joblib.load", "marshal.loads"),
            *(
                "shelve.open",
                "pd.read_pickle",
                "yaml.load",
                "yaml.unsafe_load",
                "exec",
                "Tuner.restore",
                "tune.Tuner.restore",
            ),
        ):
            found.append(where)
        # Of ruamel's kinds, these two build no Python objects by name.
        if function == "YAML" and given.get("typ") not in ("'safe'", "'rt'"):
            found.append(where)
    assert found == ["goal_core/basics/registry.py: exec", "goal_core/official/convert.py: _VocabularyUnpickler"]
