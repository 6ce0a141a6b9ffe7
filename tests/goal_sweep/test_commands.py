"""The commands as functions: a script and a notebook launch a sweep, and use what it returns."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from matplotlib.figure import Figure
from nbconvert.preprocessors import ExecutePreprocessor

import goal_sweep
from goal_sweep.goal_core.basics.errors import GoalError
from tests.helpers.blank_figures import blank_figures
from tests.helpers.paths import SCENES
from tests.helpers.product import EPOCHS, STORE, num_epochs, tiny_in
from tests.helpers.results_folder import finished
from tests.helpers.sweep_cases import SETTINGS
from tests.helpers.until import until

ROOT = Path(__file__).parents[2]
SCRIPT = f"""
import goal_sweep

result = goal_sweep.launch("tiny.yaml", set=["stages.frozen.epochs={40 * EPOCHS}"])
print("ended", result.status, set(result.frame["status"]))
"""


def test_a_report_returns_what_it_shows(tmp_path: Path, empty_database: Path) -> None:
    finished(tmp_path, empty_database)
    where: dict[str, Any] = {"set": SETTINGS, "store": tmp_path}
    with blank_figures():
        result = goal_sweep.report(SCENES, out=tmp_path / "apart", **where)
    assert (tmp_path / "apart" / "report.html").is_file()
    assert result.frame.equals(goal_sweep.results(SCENES, **where))
    assert len(result.blocks) == 2
    for block in result.blocks:
        assert isinstance(result.heatmap("R@5", block), Figure)
    with pytest.raises(GoalError, match="no block 'other'"):
        result.heatmap(block="other")
    page = result._repr_html_()
    assert all(text.partition(" ")[0] in page for text in result.verdict)
    assert "data:image/png" in page
    with pytest.raises(GoalError, match="it has con/con, sig/cir"):
        result.best("con/nca")


@pytest.mark.exhaustive
@pytest.mark.integration
def test_a_launch_returns_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny_in(tmp_path / "own"))
    assert "tiny: valid" in goal_sweep.validate("tiny.yaml")[0]
    assert [row["trainings"] for row in goal_sweep.plan("tiny.yaml")["stages"]] == [2, 2]
    result = goal_sweep.launch("tiny.yaml")
    assert result.status == 0
    assert set(goal_sweep.status("tiny.yaml")["state"]) == {"done"}
    (checkpoint,) = result.frame.query("pair == 'con' and stage == 'finetune'")["checkpoint"]
    vectors = result.best("con/con").encode_texts(["a red circle"])
    assert (vectors == goal_sweep.load(checkpoint).encode_texts(["a red circle"])).all()


@pytest.mark.exhaustive
@pytest.mark.integration
def test_an_interrupt_saves_and_returns(tmp_path: Path) -> None:
    folder = tiny_in(tmp_path / "own")
    with (folder / "said").open("w") as said:
        script = subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=folder, stdout=said, stderr=said)
    until(lambda: num_epochs(folder) > 0 or script.poll() is not None, "epoch", 300)
    script.send_signal(signal.SIGINT)
    assert script.wait(120) == 0
    assert "ended 130" in (folder / "said").read_text()
    assert num_epochs(folder) > 0


@pytest.mark.parametrize(
    ("sweep", "settings", "said"),
    [
        ("none.yaml", [], "none.yaml"),
        ("tiny.yaml", ["stages.frozen.epochs=0"], "stages.frozen.epochs"),
        ("tiny.yaml", ["stages.frozen.batch_size=999"], "batch_size"),
    ],
)
def test_a_mistake_is_an_error_that_says_where(
    sweep: str, settings: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_in(tmp_path / "own"))
    for function in (goal_sweep.launch, goal_sweep.validate, goal_sweep.plan)[said == "batch_size" :]:
        with pytest.raises(GoalError, match=said):
            function(sweep, set=settings)
    assert not list(Path(STORE).glob("cells/*"))


def test_settings_are_a_list() -> None:
    with pytest.raises(GoalError, match="list"):
        goal_sweep.launch("quickstart.yaml", set="seeds=[1]")


@pytest.mark.exhaustive
@pytest.mark.integration
@pytest.mark.timeout(900)
def test_the_notebook_runs_as_it_stands(tmp_path: Path) -> None:
    notebook = nbformat.read(ROOT / "docs" / "notebook.ipynb", as_version=4)
    ExecutePreprocessor(timeout=None).preprocess(notebook, {"metadata": {"path": str(tmp_path)}})
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [output for output in shown if output.output_type == "error"]
    grids = [output.data["text/html"] for output in shown if "12 done" in output.get("data", {}).get("text/html", "")]
    assert len(grids) == 1
    assert sum("image/png" in output.get("data", {}) for output in shown) == 1
