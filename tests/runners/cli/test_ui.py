"""`goal-sweep ui`: the sweep must exist, and the port must be free."""

import re
import shutil
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import psutil
import pytest

from goal_sweep.runners.cli.app import run
from tests.helpers.launches import command


def test_a_store_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ui", "quickstart", "--store", str(tmp_path / "nowhere")]) == 2
    assert "error: no tracking database at" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_a_store_of_another_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store.json").write_text('{"version": 2}')
    assert run(["ui", "quickstart", "--store", str(tmp_path)]) == 2
    assert f"store {tmp_path} was written by another version" in capsys.readouterr().err


@pytest.mark.integration
def test_a_port_that_is_taken_is_one_line(tmp_path: Path, empty_database: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["ui", "quickstart", "--store", str(tmp_path), "--port", str(port)]) == 2
    shown = capsys.readouterr()
    assert f"error: port {port} cannot be used" in shown.err
    assert shown.out == ""


@pytest.mark.exhaustive
@pytest.mark.integration
@pytest.mark.slow
def test_the_address_is_printed_once_the_page_answers_and_the_server_ends_with_the_command(
    tmp_path: Path, empty_database: Path
) -> None:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = command("ui", "quickstart", "--store", str(tmp_path), "--port", str(port))
    said = tmp_path / "stderr.txt"
    with said.open("w") as errors:
        page = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert page.stdout is not None
    line = next((line for line in page.stdout if re.match(r"http://127", line)), "") or said.read_text()
    assert line.startswith(f"http://127.0.0.1:{port}  (sqlite:///")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
        assert answer.status == 200
    servers = psutil.Process(page.pid).children(recursive=True)
    page.send_signal(signal.SIGTERM)
    assert page.wait(timeout=60) == 130
    gone, alive = psutil.wait_procs(servers, timeout=30)
    assert (len(gone), alive) == (len(servers), [])
