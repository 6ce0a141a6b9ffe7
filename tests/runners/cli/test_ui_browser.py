"""The links that `goal-sweep ui` prints, followed in a real browser as a reader would."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from runners.cli.app import run
from tests.helpers.chromium import CHROMIUM, Browser
from tests.helpers.launches import command
from tests.helpers.results_folder import arguments, finished

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.exhaustive]


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the path")
def test_the_printed_link_opens_the_runs_and_a_click_opens_one(tmp_path: Path, empty_database: Path) -> None:
    store = tmp_path / "store"
    finished(store, empty_database)
    assert run(arguments("report", store)) == 0
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = command(*arguments("ui", store, "--port", str(port)))
    ui = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert ui.stdout is not None
        links = [
            next(line.strip() for line in ui.stdout if "viewStateShareKey" in line) for _ in ("frozen", "finetune")
        ]
        assert [re.sub(r".*-", "", link) for link in links] == ["frozen", "finetune"]
        with Browser(tmp_path / "profile") as browser:
            browser.open(links[0])
            browser.wait_for("Group: sig/cir", 120)
            assert "matching runs" in browser.text()
            assert "Traces 0" not in browser.text()
            text = browser.text()
            assert text.index("Group: sig/cir") < text.index("Group: con/con")  # the best is first
            assert "con/con test_byobnet seed 1 (frozen)" not in text  # and only its runs are unfolded
            browser.click("sig/cir test_byobnet seed 1 (frozen)")
            browser.wait_for("About this run")
            for fact in ("goal-sweep launch", "scenes (print)", "goal.checkpoint", "Datasets", "Source"):
                browser.wait_for(fact)
            browser.open(links[0].replace("/runs?", "/models?"))
            browser.wait_for("sig-cir test_byobnet seed 1 (finetune)")
            assert "con-con test_byobnet" not in browser.text()
    finally:
        ui.send_signal(signal.SIGTERM)
        ui.wait(timeout=60)
