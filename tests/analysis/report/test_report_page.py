"""The report as a reader meets it: the page in a real browser, the tables through a real TeX."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.blank_figures import write_texts
from tests.helpers.chromium import CHROMIUM, Browser
from tests.helpers.results_cases import SweepWriter

WIDTHS = (360, 600, 1400)
SCREEN = 900

in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the path")
OUTSIDE = """
  [...document.querySelectorAll("body *")].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width && !e.closest("figure") && (box.right > innerWidth + 1 || box.left < -1);
  }).map(e => e.tagName + " " + e.textContent.trim().slice(0, 40))
"""
BROKEN_NUMBERS = """
  [...document.querySelectorAll("td.num, .grid td b")].filter(e => {
    const range = document.createRange();
    range.selectNodeContents(e);
    return e.offsetParent && !e.textContent.includes(" ") && range.getClientRects().length > 1;
  }).map(e => e.textContent)
"""
UNEQUAL_COLUMNS = """
  [...document.querySelectorAll("table.grid")].filter(e => e.offsetParent).map(e => {
    const widths = [...e.tBodies[0].rows[0].cells].slice(1).map(cell => cell.getBoundingClientRect().width);
    return Math.max(...widths) - Math.min(...widths);
  }).filter(difference => difference > 1)
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of 15 objectives, 3 seeds and 2 stages, in the folder of their store."""
    folder = tmp_path_factory.mktemp("page")
    writer = SweepWriter("complete", stages=["frozen", "finetune"])
    writer.write_all()
    writer.write_all(stage="finetune")
    for row in writer.rows:
        cell, training = (str(row[name]).replace("/", "_") for name in ("cell", "training"))
        row["log"] = f"cells/{cell}/{row['stage']}-{training}/log.txt"
        (folder / row["log"]).parent.mkdir(parents=True)
        (folder / row["log"]).write_text("trained\n")
    target = folder / "reports" / "complete"
    write_texts(
        writer.results(folder),
        target,
        compare_with_paper=True,
        mlflow_run="http://127.0.0.1:5000/#/experiments/1/runs?key={training}",
    )
    return target / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def shown(browser: Browser, page: Path, width: int = 1400, scheme: str = "light") -> Browser:
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=SCREEN, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open("about:blank")
    browser.open(page.as_uri())
    browser.wait_for("Runs, logs and checkpoints")
    return browser


def visible(browser: Browser, selector: str) -> int:
    return int(browser.ask(f"[...document.querySelectorAll('{selector}')].filter(e => e.offsetParent).length"))


@pytest.mark.slow
@in_a_browser
def test_the_answer_comes_first_and_the_page_is_short(browser: Browser, page: Path) -> None:
    shown(browser, page)
    assert browser.ask("document.querySelector('.grid').getBoundingClientRect().bottom") < SCREEN
    assert browser.ask("document.documentElement.scrollHeight") <= 6 * SCREEN
    titles = browser.ask("[...document.querySelectorAll('h2')].filter(e => e.offsetParent).map(e => e.textContent)")
    assert titles == ["The answer", "Heatmaps", "Differences from con/con", "The tables in words", "Details"]
    assert browser.ask("performance.getEntriesByType('resource').filter(r => !r.name.startsWith('data:')).length") == 0


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_lies_outside_the_page(browser: Browser, page: Path, width: int) -> None:
    shown(browser, page, width)
    for before in ("0", "document.querySelectorAll('details').forEach(d => d.open = true)"):
        browser.ask(before)
        assert browser.ask(OUTSIDE) == []
    assert browser.ask(BROKEN_NUMBERS) == []
    assert browser.ask(UNEQUAL_COLUMNS) == []
    assert browser.ask("document.documentElement.scrollWidth") <= width
    browser.ask("document.querySelector('table.grid td a').click()")
    assert browser.ask("document.getElementById('cell').open")
    assert browser.ask(OUTSIDE) == []


@pytest.mark.slow
@in_a_browser
def test_the_metric_is_switched_in_place_and_a_cell_leads_to_its_runs(browser: Browser, page: Path) -> None:
    shown(browser, page)  # on the metric of the verdict
    assert (visible(browser, "table.grid"), visible(browser, "table.forest")) == (2, 2)
    assert "difference of 6 points" in browser.text() or "varies between seeds" in browser.text()
    browser.click("R@1", "label")
    assert (visible(browser, "table.grid"), visible(browser, "table.forest")) == (4, 4)
    browser.click("R@5", "label")
    browser.click("Text → Image", "label")
    assert (visible(browser, "table.grid"), visible(browser, "table.forest")) == (2, 2)
    browser.ask("document.querySelector('#coco-vsepp-resnet152-finetune .m-r5 .d-t2i td.best a').click()")
    browser.wait_for("Close")
    said = browser.ask("document.getElementById('cell').innerText")
    assert said.startswith("sig-ms/cir, MS-COCO, VSE++ (resnet152), stage finetune")
    assert "cells/cell-sig-ms_cir-1-finetune-resnet152/finetune-key-sig-ms_cir-1-finetune-resnet152\tlog.txt" in said
    link = browser.ask("document.querySelector('#cell td.path a').getAttribute('href')")
    assert link.startswith("../../cells/cell-sig-ms_cir-1")
    browser.click("Close")
    assert not browser.ask("document.getElementById('cell').open")


@pytest.mark.slow
@in_a_browser
def test_it_fits_the_frame_in_which_mlflow_shows_it(browser: Browser, page: Path, tmp_path: Path) -> None:
    facts = (  # once the frame has its size
        "addEventListener('load', () => requestAnimationFrame(() => setTimeout(() => {"
        "document.querySelector('table.grid td a').click();"
        "const dead = document.querySelectorAll('td.path a, td.run a').length;"
        f"parent.postMessage({{outside: {OUTSIDE}, dead, open: document.getElementById('cell').open}}, '*');"
        "})));"
    )
    text = page.read_text().replace("</body>", f"<script>{facts}</script></body>")
    frame = tmp_path / "frame.html"
    frame.write_text(
        "<body>Runs, logs and checkpoints"
        '<iframe sandbox="allow-scripts" style="display: block; width: 520px; height: 700px"></iframe>'
        f"<script>const text = {json.dumps(text).replace('</', '<' + chr(92) + '/')};"
        "window.onmessage = event => { window.facts = event.data; document.body.append('answered'); };"
        "document.querySelector('iframe').src = URL.createObjectURL(new Blob([text], {type: 'text/html'}));</script>"
    )
    shown(browser, frame)
    browser.wait_for("answered")
    assert browser.ask("window.facts") == {"outside": [], "dead": 0, "open": True}
