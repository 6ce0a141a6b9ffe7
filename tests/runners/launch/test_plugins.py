"""Parts of one's own in a launch: what runs them, what trains again after an edit, and what only reads."""

import re
from pathlib import Path

import pytest
from PIL import Image

import goal_sweep
from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.evaluation.trained_model import load_model
from goal_sweep.goal_core.models.weights import image_backbones
from goal_sweep.runners.launch.opened import OpenedSweep, open_sweep
from goal_sweep.runners.results import update_results
from goal_sweep.sweeps import SweepError, load_sweep
from tests.helpers.in_process import SWEEP, launch, results
from tests.helpers.launches import goal_sweep_here

pytestmark = [pytest.mark.usefixtures("without_plugins"), pytest.mark.slow]
PAGE = Path(__file__).parents[3] / "docs" / "plugins.md"
WEIGHT, BACKBONE, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
OWN = SWEEP.replace("name: tiny", "name: tiny\nplugins: [own/weight.py]").replace(
    "{only: [con/con, sig-ms/cir]}", "{pair: [con, square], triplet: [con]}"
)


def sweep_of(folder: Path, text: str = OWN, *, trusted: bool = True) -> OpenedSweep:
    folder.mkdir(exist_ok=True)
    (folder / "tiny.yaml").write_text(text)
    return open_sweep(load_sweep(str(folder / "tiny.yaml"), [f"store={folder / 'store'}"], trusted=trusted))


def plugin_in(folder: Path, text: str, name: str = "weight") -> None:
    (folder / "own").mkdir(parents=True, exist_ok=True)
    (folder / "own" / f"{name}.py").write_text(text)


def test_an_edited_weight_trains_its_own_cells_again_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plugin_in(tmp_path, WEIGHT)
    sweep = sweep_of(tmp_path)
    sweep.check_trainable()
    assert launch(sweep, monkeypatch).status == 0
    first = {training.key: training.name for training in sweep.trainings}
    before = results(sweep)
    plugin_in(tmp_path, WEIGHT.replace("(1 - triplets.pos)", "2 * (1 - triplets.pos)"))
    edited = sweep_of(tmp_path)
    again = {training.name for training in edited.trainings if training.key not in first}
    assert again == {name for name in first.values() if name.startswith("square/")}
    assert launch(edited, monkeypatch).status == 0
    after = results(edited)
    assert all((after[name] != before[name]) == (name in again) for name in before)


def test_a_backbone_of_ones_own_trains_in_both_stages_and_is_part_of_the_id(tmp_path: Path, monkeypatch):
    text = OWN.replace("own/weight.py", "own/weight.py, own/convs.py").replace("name: test_resnet", "name: two_convs")
    plugin_in(tmp_path, WEIGHT)
    plugin_in(tmp_path, BACKBONE, "convs")
    sweep = sweep_of(tmp_path, text)
    sweep.check_trainable()
    assert launch(sweep, monkeypatch).status == 0
    assert len(results(sweep)) == 4
    plugin_in(tmp_path, BACKBONE.replace("ReLU", "GELU"), "convs")
    assert not {one.key for one in sweep_of(tmp_path, text).trainings} & {one.key for one in sweep.trainings}
    best = next((tmp_path / "store").glob("cells/*/finetune-*/best-*.safetensors"))
    del image_backbones["two_convs"]  # as in another process
    with pytest.raises(WeightsError, match="needs its plugin"):
        load_model(best)
    again = tmp_path / "moved.py"
    again.write_text(BACKBONE)
    assert load_model(best, plugins=[str(again)]).encode_images([Image.new("RGB", (40, 40))]).shape[0] == 1


def test_status_report_and_results_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin_in(tmp_path, WEIGHT)
    trained = sweep_of(tmp_path)
    assert launch(trained, monkeypatch).status == 0
    ran = tmp_path / "ran"
    plugin_in(tmp_path, f"{WEIGHT}\nopen({str(ran)!r}, 'w')\n")
    update_results(trained.store, trained)
    for words in (["status"], ["status", "--json"], ["report"]):
        done = goal_sweep_here(tmp_path, words[0], "tiny.yaml", *words[1:], "--store", "store")
        assert done.returncode == 0, done.stderr
        if "status" in words:
            assert all(training.name in done.stdout for training in trained.trainings)
    frame = goal_sweep.results(tmp_path / "tiny.yaml", store=tmp_path / "store")
    assert frame["training"].tolist() == [training.key for training in trained.trainings]
    assert not ran.exists()


def test_a_sweep_from_elsewhere_runs_no_plugin_unless_it_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ran = tmp_path / "ran"
    plugin_in(tmp_path / "theirs", f"{WEIGHT}\nopen({str(ran)!r}, 'w')\n")
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    with pytest.raises(SweepError, match=r"tiny.yaml:3: plugins: .* --trust-plugins"):
        sweep_of(tmp_path / "theirs", trusted=False)
    assert not ran.exists()
    sweep_of(tmp_path / "theirs")
    assert ran.exists()
