"""Ray's own client against servers that are silent, note what they are sent, or are no dashboard."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from runners.cluster import ray_client
from runners.cluster.backend import ClusterError, NoAnswerError
from runners.cluster.ray_client import token_source
from runners.cluster.ray_jobs import RayJobs
from tests.helpers.cluster_cases import submission

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("requests") is None, reason="Ray's Jobs API needs ray[default]"
)


class Dashboard(ThreadingHTTPServer):
    """Answers as Ray's dashboard does, and keeps the tokens that it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tokens: list[str] = []
        self.version: dict[str, Any] = {"ray_version": "2.60.0"}
        self.status = 200
        self.address = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Dashboard

    def do_GET(self) -> None:
        self.server.tokens.append(self.headers.get("Authorization", ""))
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
    assert ray_client._GREETING_S < 20
    monkeypatch.setattr(ray_client, "_GREETING_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError) as refused:
            RayJobs().state(submission("ray", address=address), tmp_path)
    assert str(refused.value) == f"Ray at {address}: does not answer (waited 0.3 s)"
    assert not isinstance(refused.value, NoAnswerError)


def test_a_dashboard_that_stops_to_answer_may_have_done_what_it_was_asked_for(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_client, "_ANSWER_S", 0.2)
    with (
        pytest.raises(NoAnswerError, match="does not answer"),
        RayJobs()._client({"address": dashboard.address}) as client,
    ):
        client.get_job_info("slow")


def test_what_is_no_dashboard_is_said_so(dashboard: Dashboard, tmp_path: Path) -> None:
    dashboard.version = {}
    with pytest.raises(ClusterError, match="the server there is not a Ray dashboard"):
        RayJobs().state(submission("ray", address=dashboard.address), tmp_path)


def test_the_token_file_counts_before_the_variables_and_for_its_record_alone(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("mine\n")
    for name, value in (("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN", "of-the-shell"), ("RAY_ADDRESS", "http://x:1")):
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with_file = submission("ray", address=dashboard.address, token_file=str(token))
    assert RayJobs().state(with_file, tmp_path).phase == "unknown"
    assert set(dashboard.tokens) == {"Bearer mine"}
    assert dict(os.environ) == before
    dashboard.tokens.clear()
    monkeypatch.delenv("RAY_AUTH_MODE")
    RayJobs().state(submission("ray", address=dashboard.address), tmp_path)
    assert "Bearer mine" not in dashboard.tokens


def test_a_refused_token_is_named_by_its_source(dashboard: Dashboard, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("wrong")
    dashboard.status = 403
    with pytest.raises(ClusterError) as refused:
        RayJobs().state(submission("ray", address=dashboard.address, token_file=str(token)), tmp_path)
    assert str(refused.value).endswith(f"; the token is that of cluster.ray.token_file, {token}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("environ", "source"),
    [
        ({}, "no token was sent; cluster.ray.token_file names a file with it"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x"}, "the token is that of RAY_AUTH_TOKEN"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/t"}, "the token is that of /t"),
        ({"RAY_AUTH_MODE": "token"}, "the token is that of ~/.ray/auth_token"),
    ],
)
def test_without_a_token_file_ray_s_own_variables_are_named(environ: dict[str, str], source: str) -> None:
    assert token_source("", environ) == source


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_text(" \n"), "does not hold one token"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_named(make: Any, said: str, tmp_path: Path) -> None:
    make(tmp_path / "token")
    with pytest.raises(ClusterError, match=f"the token file {tmp_path}/token {said}"):
        RayJobs().state(submission("ray", address="http://127.0.0.1:9", token_file=str(tmp_path / "token")), tmp_path)


def test_ray_says_nothing_by_itself(dashboard: Dashboard, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    RayJobs().state(submission("ray", address=dashboard.address), tmp_path)
    for name in ray_client._CHATTY:
        logging.getLogger(name).info("Uploading package")
    assert capfd.readouterr() == ("", "")
