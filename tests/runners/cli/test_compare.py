"""Two objectives of a finished sweep are compared at the command line, with the pictures of the test split."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from goal_sweep.goal_core.data.dataset import Split
from goal_sweep.goal_core.data.scenes import SceneReader
from goal_sweep.runners.cli.app import run
from tests.helpers.chromium import CHROMIUM, Browser
from tests.helpers.in_process import launch, results, sweep_in

ONE, OTHER = "con/con", "sig-ms/cir"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished sweep of two objectives, two stages and two seeds; the current folder."""
    folder = tmp_path_factory.mktemp("sweep")
    with pytest.MonkeyPatch.context() as patch:
        launch(sweep_in(folder, "seeds=[1,2]"), patch)
        patch.chdir(folder)
        yield folder


def compare(*more: str) -> int:
    return run(["compare", "tiny.yaml", ONE, OTHER, "--store", "store", "--set", "seeds=[1,2]", *more])


def test_the_terminal_and_the_page_say_what_the_results_say(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare() == 0
    *said, page = capsys.readouterr().out.splitlines()
    assert max(map(len, said)) <= 80
    found = results(sweep_in(folder, "seeds=[1,2]"))
    for direction, key in (("Text -> Image", "t2i_r1"), ("Image -> Text", "i2t_r1")):
        (line,) = [line for line in said if line.startswith(direction)]
        for objective in (ONE, OTHER):
            values = [own[0][f"test/{key}"] for name, own in found.items() if objective in name and "finetune" in name]
            assert f"{objective} {np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" in line
    assert "data:image/webp;base64," in Path(page).read_text()


def test_a_stage_a_seed_and_a_place_are_chosen(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ("--direction", "t2i", "--stage", "frozen", "--seed", "2", "--most", "1", "--out", "p.html")
    assert compare(*chosen) == 0
    said = capsys.readouterr().out
    assert "stage frozen" in said
    assert "Image -> Text" not in said
    assert Path("p.html").read_text().count("<article") <= 3
    for more, message in ((chosen, "p.html is there already"), (("--seed", "9"), "give --seed, one of 1, 2")):
        assert compare(*more) == 2
        assert message in capsys.readouterr().err
    assert compare(*chosen, "--force") == 0


def test_names_of_features_are_no_markup(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Split, "region_shape", (64,))
    monkeypatch.setattr(SceneReader, "label", lambda reader, index: f"<i>{index}")
    assert compare("--out", "features.html") == 0
    text = Path("features.html").read_text()
    assert "features without pictures" in text
    assert "&lt;i&gt;" in text
    assert "<img" not in text
    assert "<i>" not in text


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the path")
@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_lies_outside_the_page(folder: Path, tmp_path: Path, width: int) -> None:
    assert compare("--out", str(tmp_path / "page.html")) == 0
    with Browser(tmp_path / "profile") as browser:
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.open((tmp_path / "page.html").as_uri())
        browser.wait_for("Image → Text")
        browser.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert browser.ask("document.documentElement.scrollWidth") <= width
        assert browser.ask("[...document.images].filter(one => one.complete && !one.naturalWidth).length") == 0
