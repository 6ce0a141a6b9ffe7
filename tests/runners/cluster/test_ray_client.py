"""Ray's own client against servers that are silent, note what they are sent, or are no dashboard."""

import importlib.util
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.runners.cluster import ray_jobs
from goal_sweep.runners.cluster.backend import ClusterError, NoAnswerError
from tests.helpers.cluster_cases import submission

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("requests") is None, reason="Ray's Jobs API needs ray[default]"
)


class Dashboard(ThreadingHTTPServer):
    """Answers as Ray's dashboard does, with a status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.version: dict[str, Any] = {"ray_version": "2.60.0"}
        self.status = 200
        self.address = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Dashboard

    def do_GET(self) -> None:
        if self.path == "/api/version":
            self.say(self.server.status, json.dumps(self.server.version))
        elif self.path.startswith("/api/jobs/slow"):
            time.sleep(1.0)
            self.say(200, "{}")
        else:
            self.say(404, "job does not exist")

    def say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    server = Dashboard()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_dashboard_that_never_answers_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert ray_jobs._GREETING_S < 20
    monkeypatch.setattr(ray_jobs, "_GREETING_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError) as refused:
            ray_jobs.state(submission("ray", address=address), tmp_path)
    assert str(refused.value) == f"Ray at {address}: does not answer (waited 0.3 s)"
    assert not isinstance(refused.value, NoAnswerError)


def test_what_is_no_dashboard_is_said_so(dashboard: Dashboard, tmp_path: Path) -> None:
    dashboard.version = {}
    with pytest.raises(ClusterError, match="the server there is not a Ray dashboard"):
        ray_jobs.state(submission("ray", address=dashboard.address), tmp_path)


def test_the_address_is_the_one_that_is_asked_for(dashboard: Dashboard, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("RAY_ADDRESS", "http://x:1")
    before = dict(os.environ)
    assert ray_jobs.state(submission("ray", address=dashboard.address), tmp_path).phase == "unknown"
    assert dict(os.environ) == before
    dashboard.status = 403
    with pytest.raises(ClusterError, match=r"RAY_AUTH_TOKEN_PATH$") as refused:
        ray_jobs.state(submission("ray", address=dashboard.address), tmp_path)
    assert "\n" not in str(refused.value)
