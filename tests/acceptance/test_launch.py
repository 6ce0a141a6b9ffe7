"""A launch and what the next commands make of its store, at the level of the command line."""

import shutil
from pathlib import Path

import pytest

from tests.helpers.launches import goal_sweep_here
from tests.helpers.product import STORE, check_mlflow, files, histories, results, run, status, tiny_in

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def test_it_trains_everything_and_reports(unbroken: Path) -> None:
    assert len(results(unbroken)) == 4
    check_mlflow(unbroken)
    report = unbroken / STORE / "reports" / "tiny"
    assert "R@1" in (report / "report.md").read_text()
    assert (report / "report.html").is_file()
    assert list(report.glob("heatmaps/*.png"))
    assert "4 of 4 results" in (unbroken / "said").read_text()


def test_status_shows_the_stores_numbers_and_writes_nothing(unbroken: Path) -> None:
    before = files(unbroken)
    rows = status(unbroken)
    assert [(row["state"], row["epoch"] == row["epochs"]) for row in rows] == [("done", True)] * 4
    assert {row["stage"] for row in rows} == {"frozen", "finetune"}
    of_store = sorted(metrics["test/rsum"] for metrics in results(unbroken).values())
    assert sorted(row["test"]["test/rsum"] for row in rows) == of_store
    shown = goal_sweep_here(unbroken, "status", "tiny.yaml")
    assert shown.returncode == 0
    assert all(weight in shown.stdout for weight in ("con", "sig-ms", "cir"))
    assert files(unbroken) == before


@pytest.mark.exhaustive
def test_a_new_seed_and_an_edited_rate_train_only_what_is_new(unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    before = files(folder)
    asked = ["--set", "seeds=[1,2]", "--set", "stages.finetune.lr=1e-3"]
    run(folder, "launch", "tiny.yaml", *asked, status=0)
    stages = [name.split("/")[1].split("-")[0] for name in results(folder)]
    assert (stages.count("frozen"), stages.count("finetune")) == (2 + 2, 2 + 4)
    after = files(folder)
    assert {path: after[path] for path in before} == before
    assert {row["state"] for row in status(folder, *asked)} == {"done"}


@pytest.mark.exhaustive
def test_a_store_is_a_folder(unbroken: Path, tmp_path: Path) -> None:
    """Copied or moved anywhere, it is what it was, and nothing in it leads back."""
    folder = tiny_in(tmp_path / "elsewhere")
    shutil.copytree(unbroken / STORE, folder / STORE)
    before = files(folder)
    run(folder, "launch", "tiny.yaml", status=0)
    assert files(folder) == before
    assert histories(folder) == histories(unbroken)
    run(folder, "sync", "tiny.yaml", status=0)
    check_mlflow(folder)
