"""Published pickles are read, from Python 2 too; a pickle that asks for anything else is refused and never run."""

import json
import os
import pickle
import sys
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from goal_sweep.goal_core.basics.errors import DataError, WeightsError
from goal_sweep.goal_core.data.text import Vocabulary
from goal_sweep.goal_core.official.convert import read_torch_file, read_vocabulary, rename_tensors, tensors_of
from tests.helpers.python2_pickle import save_python2_pickle, save_python2_torch

WEIGHTS = OrderedDict(weight=torch.arange(6.0).view(2, 3), bias=torch.ones(2))
SAVED = {
    "epoch": 7,
    "best_rsum": np.float64(412.5),
    "opt": Namespace(data_name="coco", logger_name="caf\xe9", lr=2e-4),
    "model": [WEIGHTS, WEIGHTS],
}


def save_now(value: Any, path: Path) -> None:
    torch.save(value, path)


def save_before_zip(value: Any, path: Path) -> None:
    torch.save(value, path, _use_new_zipfile_serialization=False)


SAVERS = [save_now, save_before_zip, save_python2_torch]


@pytest.mark.parametrize("save", SAVERS)
def test_every_layout_is_read(tmp_path: Path, save: Any) -> None:
    save(SAVED, tmp_path / "model_best.pth.tar")
    stored = read_torch_file(tmp_path / "model_best.pth.tar")
    assert stored["epoch"] == 7
    assert stored["best_rsum"] == 412.5
    assert vars(stored["opt"]) == vars(SAVED["opt"])
    for part in stored["model"]:
        assert all(torch.equal(tensors_of(part, "x")[name], WEIGHTS[name]) for name in WEIGHTS)


class Calls:
    """Unpickled by calling a function: what an attacker writes."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("save", SAVERS)
@pytest.mark.parametrize("function", [os.system, eval, getattr], ids=lambda f: f.__name__)
def test_a_pickle_that_calls_is_refused_by_the_name_of_its_function(tmp_path: Path, save: Any, function: Any) -> None:
    """That nothing is run is tested for every reader in tests/test_nothing_is_unpickled.py."""
    path = tmp_path / "evil.pth"
    save({**SAVED, "opt": Calls(function, "text")}, path)
    with pytest.raises(WeightsError, match=rf"is refused: .*{function.__name__}.*nothing in it was run"):
        read_torch_file(path)


def test_damaged_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no checkpoint at"):
        read_torch_file(tmp_path / "none.pth")
    save_now(SAVED, tmp_path / "cut.pth")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "cut.pth").read_bytes()[:300])
    with pytest.raises(WeightsError, match="has lost its end"):
        read_torch_file(tmp_path / "cut.pth")
    save_now([1, 2], tmp_path / "list.pth")
    with pytest.raises(WeightsError, match="contains a list"):
        read_torch_file(tmp_path / "list.pth")
    with pytest.raises(WeightsError, match="contains 'b', which is not a tensor"):
        tensors_of({"a": torch.ones(1), "b": 3}, "x.pth")


def published_vocabulary(module: str, words: tuple[str, ...]) -> Any:
    """An object of the class `Vocabulary` of a module that need not exist when it is read."""
    ids = {word: index for index, word in enumerate(("<pad>", "<start>", "<end>", "<unk>", *words))}
    kind = type("Vocabulary", (), {"__module__": module})
    vocabulary = kind()
    vocabulary.word2idx, vocabulary.idx2word = ids, {index: word for word, index in ids.items()}
    vocabulary.idx = len(ids)
    return vocabulary


@pytest.mark.parametrize("module", ["vocab", "__main__"])
@pytest.mark.parametrize("python", [2, 3])
def test_published_vocabulary_keeps_its_order(tmp_path: Path, monkeypatch, module: str, python: int):
    vocabulary = published_vocabulary(module, ("zebra", "a", "man"))
    stand_in = ModuleType(module)
    stand_in.Vocabulary = type(vocabulary)  # type: ignore[attr-defined]
    path = tmp_path / "coco_vocab.pkl"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, module, stand_in)
        if python == 2:
            save_python2_pickle(vocabulary, path)
        else:
            path.write_bytes(pickle.dumps(vocabulary))
    assert read_vocabulary(path) == Vocabulary(("zebra", "a", "man"))


def test_vocabulary_as_json(tmp_path: Path) -> None:
    ids = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "b": 5, "a": 4}
    (tmp_path / "v.json").write_text(json.dumps({"word2idx": ids}))
    assert read_vocabulary(tmp_path / "v.json") == Vocabulary(("a", "b"))
    for wrong, message in (
        ({"word2idx": {**ids, "c": 9}}, "0, 1, 2"),
        ({"word2idx": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}}, "begin with <pad>"),
        ({"words": []}, "no mapping word2idx"),
    ):
        (tmp_path / "v.json").write_text(json.dumps(wrong))
        with pytest.raises(DataError, match=message):
            read_vocabulary(tmp_path / "v.json")
    with pytest.raises(DataError, match="no vocabulary at"):
        read_vocabulary(tmp_path / "none.pkl")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"the\na\nman\n", "it seems to be text"),
        (b"<pad>\n", "it seems to be text"),
        (b'["the", "a"]', "no mapping word2idx"),
        (b'{"word2idx": ', "JSONDecodeError"),
        (b"version https://git-lfs.github.com/spec/v1", "is a Git LFS pointer"),
        (b"", "is empty"),
    ],
)
def test_another_file_than_a_vocabulary_is_called_what_it_is(tmp_path: Path, content: bytes, said: str) -> None:
    (path := tmp_path / "v.pkl").write_bytes(content)
    with pytest.raises(DataError, match=f"{path}.*{said}") as caught:
        read_vocabulary(path)
    assert "\n" not in str(caught.value)


OWN = {"a.weight": torch.zeros(2, 3), "b": torch.zeros(4), "bn.num_batches_tracked": torch.tensor(0)}


def test_all_tensors_are_accounted_for() -> None:
    given = {"x.a.weight": torch.ones(2, 3).double(), "x.b": torch.ones(4), "head.w": torch.ones(1)}
    leaves = {r"head\.": "why"}
    tensors, leftovers = rename_tensors(OWN, given, "x.{}".format, known_leftovers=leaves, source="file.pth")
    assert tensors.keys() == OWN.keys()
    assert tensors["a.weight"].dtype == torch.float32
    assert leftovers == {"why": ["head.w"]}
