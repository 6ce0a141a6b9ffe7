"""A sweep in the place of a checkpoint: its best model on val, in a folder or a bucket; and what shells offer."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal_sweep.goal_core.checkpoints.names import weights_in
from goal_sweep.goal_core.evaluation.trained_model import load_model
from goal_sweep.runners.cli.app import run
from goal_sweep.runners.results import update_results
from tests.helpers.paths import SCENES
from tests.helpers.results_folder import RECALLS
from tests.helpers.sweep_cases import opened_in
from tests.helpers.training_cases import trained_cell

VALS = {("con/con", 1): 300.0, ("con/con", 2): 320.0, ("sig/cir", 1): 200.0, ("sig/cir", 2): 330.0}
"""Of the last stage, by objective and seed; every frozen one is higher."""
SEEDS = ["--set", "seeds=[1,2]"]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A trained model of each seed."""
    return {seed: trained_cell(tmp_path_factory.mktemp("cells"), seed) for seed in (1, 2)}


def filled(location: Path | str, cells: dict[int, Path]) -> dict[tuple[str, int], Path]:
    """Leave in a store what a launch would. Returns the weights of the last stage, by objective and seed."""
    sweep, found = opened_in(location, "seeds=[1,2]"), {}
    for training in sweep.trainings:
        folder, cell, is_last = sweep.store.folder(training), training.cell, training.stage.name == "finetune"
        place = (f"{cell.objective.pair}/{cell.objective.triplet}", cell.seed)
        weights = weights_in(cells[cell.seed])
        folder.claim("L")
        folder.save_with("best-1.safetensors", partial(shutil.copy, weights))
        folder.write_metrics([{"epoch": 1, "time": 1.7e9, "metrics": {"val/rsum": VALS[place] + 100 * (not is_last)}}])
        metrics = {f"test/{name}": 10.0 for name in RECALLS} | {"test/rsum": 60.0}
        folder.finish({"status": "done", "epochs": 1, "best_epoch": 1, "seconds": 1.0, "metrics": metrics})
        if is_last:
            found[place] = folder.path("best-1.safetensors")
    update_results(sweep.store, sweep)
    return found


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_a_sweep_stands_for_its_best_model_of_the_last_stage(
    kind: str,
    cells: dict[int, Path],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if kind == "bucket":
        request.getfixturevalue("server")
    location = str(tmp_path / "store") if kind == "folder" else "s3://bucket/models"
    filled(location, cells)
    (lines := tmp_path / "lines.txt").write_text("a red square\na dog\n")
    rest = ["--texts", str(lines), "--out", str(tmp_path / "t.npy"), "--store", location, "--force"]
    for words, seed, objective, val in (
        ([SCENES], 2, "con/con", "320.0"),  # by the mean of seeds
        ([SCENES, "sig/cir", *SEEDS], 2, "sig/cir", "330.0"),
        (["--set", "seeds=[1]", SCENES, "con/con"], 1, "con/con", "300.0"),
    ):
        assert run(["embed", *words, *rest]) == 0
        assert np.array_equal(
            np.load(tmp_path / "t.npy"), load_model(cells[seed]).encode_texts(["a red square", "a dog"])
        )
        (said,) = capsys.readouterr().err.splitlines()
        assert all(part in said for part in (objective, f"seed {seed}", "finetune", val, location)), said


def test_the_seeds_of_a_model_and_models_of_several_sweeps_are_ensembles(
    cells: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = filled(tmp_path, cells)
    store = ["--store", str(tmp_path)]
    assert run(["evaluate", str(cells[2]), str(cells[1])]) == 0
    expected = capsys.readouterr().out
    assert run(["evaluate", SCENES, "--ensemble", "2", *store]) == 0
    assert capsys.readouterr().out == expected
    assert run(["evaluate", SCENES, "sig/cir", str(weights["con/con", 1]), *store]) == 0
    assert capsys.readouterr().out == expected
    others = opened_in(tmp_path, "seeds=[1,2]", "stages.frozen.lr=7e-3")
    update_results(others.store, others)  # as a later launch with other settings does
    assert run(["card", SCENES, "sig/cir", *store]) == 0
    assert str(weights["sig/cir", 2]) in capsys.readouterr().out
    (tmp_path / "other.yaml").write_text("data: {format: scenes, num_test: 9, image: {size: 32, resize: 32}}\n")
    assert run(["evaluate", SCENES, "--ensemble", "2", *store, "--data", str(tmp_path / "other.yaml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found["images"], *(one["images"] for one in found["members"])] == [9, 9, 9]


def test_the_test_images_of_a_model_are_searched_where_no_others_are_given(
    cells: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path, cells)
    assert run(["search", SCENES, "sig/cir", "a red square", "--top", "3", "--store", str(tmp_path)]) == 0
    found = capsys.readouterr().out
    assert found.count("test scene") == 3
    assert run(["search", SCENES, "sig/cir", "a red square", "--top", "3", "--store", str(tmp_path), "--json"]) == 0
    assert [
        f"{one['similarity']:6.3f}  {one['caption']}  {one['image']}" for one in json.loads(capsys.readouterr().out)
    ] == found.splitlines()
    assert run(["search", str(cells[2]), "a red square", "--top", "3"]) == 0
    assert capsys.readouterr().out == found


def test_what_names_no_model_is_one_line(
    cells: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path, cells)
    monkeypatch.setenv("GOAL_SWEEP_STORE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos.yaml").touch()
    (tmp_path / "photos").mkdir()
    (tmp_path / "own.yaml").write_text(Path(SCENES).read_text() + "plugins: [own.py]\n")
    (tmp_path / "own.py").write_text(
        "from goal_sweep.data import importers\nimporters.register('own', source='here')(lambda path: [])"
    )
    for words, said in (
        (["evaluate", "quickstrt"], "did you mean 'quickstart'"),
        (["evaluate", SCENES, "con/sig"], "it has con/con, con/nca"),
        (["evaluate", SCENES, "--ensemble", "4"], " --seeds +1"),
        (["evaluate", SCENES, "--store", str(tmp_path / "none")], "launch the sweep first"),
        (["evaluate", str(cells[1]), "--set", "seeds=[1]"], "a checkpoint has its own settings"),
        (["search", SCENES, "a", "red", "square"], "give one model"),
        (["search", "photos", "con/con", "a red square"], "did you mean photos.yaml"),
        (["evaluate", "nosuch", "con/con"], "neither a checkpoint"),
        (["evaluate", SCENES, "--data", "captions.csv"], "takes a sweep file"),
        (["search", SCENES], "give a sentence"),
        (["evaluate", SCENES, "--set", "stages.frozen.lr=7e-3"], "-> 0.007; launch it again"),
        (["card", "own.yaml", "--set", "stages.frozen.lr=7e-3"], "-> 0.007; launch it again"),
        (["card", SCENES, "--set", "data.num_train=77"], "data.num_train 400 -> 77"),
        (["compare", "own.yaml", "con/con", "sig/cir", "--set", "data.num_test=7"], "-> 7, "),
    ):
        assert run(words) == 2, words
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line


def test_a_shell_is_offered_sweeps_and_objectives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("extends: quickstart\nobjectives: {pair: [con], baselines: [infonce]}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_GOAL_SWEEP_COMPLETE", "complete_bash")

    def offered(words: str) -> Any:
        monkeypatch.setenv("COMP_WORDS", f"goal-sweep {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
        assert run([]) == 0
        return capsys.readouterr().out.split()

    assert {"mine.yaml", "quickstart"} <= {*offered("launch "), *offered("search ")}
    assert offered("plan mi") == ["mine.yaml"]
    assert offered("evaluate mine.yaml ") == ["con/con", "con/nca", "con/cir", "infonce"]
    assert offered("card mine.yaml inf") == ["infonce"]
