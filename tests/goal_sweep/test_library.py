"""goal-sweep as a library: little is loaded, recall of anybody's embeddings, and results as a frame."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import goal_sweep
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.evaluation.retrieval import EmbeddingError, retrieval_metrics
from goal_sweep.runners.cli.app import run
from tests.helpers.paths import SCENES
from tests.helpers.results_folder import arguments, finished
from tests.helpers.sweep_cases import SETTINGS

ALONE = """
import importlib, sys
import torch, numpy
class OnlyTorchAndNumpy:
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        if first not in {"torch", "numpy", "goal_core", "goal_sweep", *sys.stdlib_module_names}:
            raise ModuleNotFoundError(name)
known = {name.partition(".")[0] for name in sys.modules}
sys.meta_path.insert(0, OnlyTorchAndNumpy())
from goal_sweep import objectives, recall
images = torch.nn.functional.normalize(torch.randn(4, 8, requires_grad=True))
objectives.GradientObjective(pair="sig-ms", triplet="cir")(images, images.roll(1, 0)).backward()
assert recall(numpy.eye(4), numpy.eye(4))["rsum"] == 600
"""


def test_objectives_and_recall_need_torch_and_numpy_alone() -> None:
    subprocess.run([sys.executable, "-c", ALONE], check=True)


def embeddings() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images, texts = (torch.nn.functional.normalize(torch.randn(n, 6, generator=generator)) for n in (12, 24))
    return images, texts, torch.randperm(24, generator=generator) % 12


def test_recall_takes_arrays_tensors_and_owners_in_any_form() -> None:
    images, texts, owners = embeddings()
    expected = retrieval_metrics(images, texts, owners)
    assert goal_sweep.recall(images, texts, owners) == expected
    read_only = images.numpy().copy()
    read_only.flags.writeable = False
    assert goal_sweep.recall(read_only, texts.numpy(), owners.tolist()) == expected
    assert goal_sweep.recall(images.numpy()[::-1], texts.numpy().astype(">f4"), (11 - owners).numpy()) == expected
    with pytest.raises(EmbeddingError, match="array of numbers"):
        goal_sweep.recall(images, texts, list("abc"))  # type: ignore[arg-type]  # which is what it refuses
    order = torch.argsort(owners, stable=True)
    assert goal_sweep.recall(images, texts[order]) == expected
    with pytest.raises(EmbeddingError, match=r"23 texts .* 12 images"):
        goal_sweep.recall(images, texts[1:])


def test_recall_warns_of_embeddings_that_are_not_of_unit_length() -> None:
    images, texts, owners = embeddings()
    images[3] *= 2
    with pytest.warns(UserWarning, match="1 of 12 image embeddings"):
        goal_sweep.recall(images, texts, owners)
    goal_sweep.recall(torch.nn.functional.normalize(images).half(), texts.half(), owners)


def test_recall_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, texts, owners = embeddings()
    for name, array in (("images", images * 3), ("texts", texts), ("owners", owners)):
        np.save(tmp_path / f"{name}.npy", array.numpy())
    files = [str(tmp_path / f"{name}.npy") for name in ("images", "texts", "owners")]
    assert run(["recall", *files[:2], "--owners", files[2], "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == retrieval_metrics(images * 3, texts, owners)
    assert "12 of 12 image embeddings" in shown.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("texts", None, "is missing"),
        ("texts", b"no array", "is not an .npy file"),
        ("texts", b"", "is empty"),
        ("images", "cut", "is cut short: "),
        ("texts", np.zeros((23, 4), int), "must contain floating point numbers"),
        ("owners", np.array(["0"] * 24), "must contain whole numbers of at most 64 bits, got <U1"),
        ("owners", np.zeros((24, 1), int), "must have shape (texts), got (24, 1)"),
    ],
)
def test_a_file_of_which_no_recall_can_be_computed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: object, said: str
) -> None:
    files = {one: tmp_path / f"{one}.npy" for one in ("images", "texts", "owners")}
    for path, array in zip(files.values(), embeddings(), strict=True):
        np.save(path, array.numpy())
    path = files[name]
    if isinstance(content, np.ndarray):
        np.save(path, content)
    elif content is None:
        path.unlink()
    else:
        path.write_bytes(content if isinstance(content, bytes) else path.read_bytes()[:-8])
    assert run(["recall", str(files["images"]), str(files["texts"]), "--owners", str(files["owners"])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path} {said}" in line


def test_results_are_a_frame(tmp_path: Path, empty_database: Path) -> None:
    sweep = finished(tmp_path, empty_database)
    frame = goal_sweep.results(SCENES, set=SETTINGS, store=tmp_path)
    assert list(frame["training"]) == [training.key for training in sweep.trainings]
    assert [frame[f"setting/stages.{stage}.lr"].tolist()[index] for index, stage in enumerate(frame["stage"])] == [
        next(stage.lr for stage in sweep.config.stages if stage.name == name) for name in frame["stage"]
    ]
    assert set(frame["setting/objective.pair"]) == {"con", "sig"}
    assert frame["test/rsum"].notna().all()
    assert all(Path(path).is_file() for path in frame["checkpoint"])
    assert run(arguments("card", tmp_path, "--out", str(tmp_path / "card.md"))) == 0
    named = re.search(r"goal_sweep\.load\('(.*)'\)", (tmp_path / "card.md").read_text())
    assert named is not None
    assert named[1] in set(frame["checkpoint"])
    with pytest.raises(GoalError):
        goal_sweep.results(SCENES, store=tmp_path / "none")
