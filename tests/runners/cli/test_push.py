"""`card --push` writes model and card to a hub, with the real library over HTTP, and nothing of this machine."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, constants

import goal_sweep
from goal_sweep.runners.launch.opened import open_sweep
from goal_sweep.sweeps import load_sweep
from tests.helpers.in_process import SWEEP, launch
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.launches import goal_sweep_here

NAME = "org/tiny-retrieval"


class Hub(ThreadingHTTPServer):
    """As much of the hub as an upload needs: one repository, whose files are told by the title of their commit."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, bytes] | None = None
        self.titles: dict[str, str] = {}
        self.private, self.tokens = False, set[str | None]()


class Answers(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        is_there = self.path == f"/api/models/{NAME}" and self.server.files is not None
        self._answer({"id": NAME, "sha": "0" * 40, "private": self.server.private}, 200 if is_there else 404)

    def do_POST(self) -> None:
        body, hub = self.rfile.read(int(self.headers["Content-Length"])), self.server
        hub.tokens.add(self.headers["Authorization"])
        match self.path.removeprefix(f"/api/models/{NAME}").split("?")[0]:
            case "/api/repos/create":
                hub.files, hub.private = {}, json.loads(body).get("visibility") == "private"
                self._answer({"url": f"{hub.address}/{NAME}"})
            case "/api/validate-yaml":
                self._answer({})
            case "/paths-info/main":
                rest = {"type": "file", "size": 1, "oid": "0"}
                last = {"id": "0", "date": "2026-01-01T00:00:00.000Z"}
                told = hub.titles.items()
                self._answer([{"path": name, "lastCommit": {"title": title, **last}, **rest} for name, title in told])
            case "/preupload/main":
                how = {"uploadMode": "regular", "shouldIgnore": False}
                self._answer({"files": [{"path": one["path"], **how} for one in json.loads(body)["files"]]})
            case "/commit/main":
                head, *files = [json.loads(line)["value"] for line in body.splitlines()]
                assert hub.files is not None
                hub.files |= {one["path"]: base64.b64decode(one["content"]) for one in files}
                hub.titles |= {one["path"]: head["summary"] for one in files}
                self._answer({"commitUrl": f"{hub.address}/{NAME}/commit/1", "commitOid": "1"})

    def _answer(self, content: Any, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Error-Code", "RepoNotFound" if status == 404 else "")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *of: object) -> None:
        return


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", server.address)  # which the library has read already
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        monkeypatch.setenv("HF_TOKEN", "hf_mine")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)  # a test before may have found no hub
        yield server
        server.shutdown()


@pytest.mark.exhaustive
def test_model_and_card_are_on_the_hub_without_paths_and_only_they_are_replaced(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f"data: {{format: karpathy, name: tiny, root: {write_dataset(tmp_path / 'data')}, min_word_count: 1}}"
    (tmp_path / "tiny.yaml").write_text(re.sub("data: .*", data, f"{SWEEP}store: store"))
    launch(open_sweep(load_sweep(str(tmp_path / "tiny.yaml"))), monkeypatch)
    command = f"card tiny.yaml --push {NAME}".split()

    def push(*more: str) -> str:
        done = goal_sweep_here(tmp_path, *command, *more)
        return done.stdout if done.returncode == 0 else f"{done.returncode}: {done.stderr}"

    address = f"{hub.address}/{NAME}\n"
    assert push("--private") == address
    assert hub.files is not None
    assert (hub.private, hub.tokens, set(hub.files)) == (True, {"Bearer hf_mine"}, {"README.md", "model.safetensors"})
    for content in hub.files.values():
        assert str(tmp_path).encode() not in content
    (tmp_path / "model.safetensors").write_bytes(hub.files["model.safetensors"])
    assert goal_sweep.load(tmp_path / "model.safetensors").encode_texts(["a dog"]).shape == (1, 16)
    card: Any = ModelCard(hub.files["README.md"].decode()).data
    results = goal_sweep.results(str(tmp_path / "tiny.yaml"))
    rsum = next(one.metric_value for one in card.eval_results if one.metric_name == "rsum")
    assert rsum in results["test/rsum"].round(2).to_list()
    assert (card.library_name, bool(card.pipeline_tag), bool(card.widget)) == ("goal-sweep", True, True)

    assert "ORG/NAME" in goal_sweep_here(tmp_path, *command[:-1], "tiny-retrieval").stderr
    hub.private = False
    assert push() == address  # its own files
    assert "public" in push("--private")
    hub.titles["README.md"] = "Update README.md"
    hub.files["README.md"] = b"mine"
    assert "README.md" in push()
    assert hub.files["README.md"] == b"mine"
    assert push("--force") == address
    assert hub.files["README.md"] != b"mine"
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("goal_sweep.runners.cli.hub.get_token", lambda: None)
    assert "hf auth login" in push()
