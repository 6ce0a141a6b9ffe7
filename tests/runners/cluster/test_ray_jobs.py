import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.runners.cluster import ray_jobs
from goal_sweep.runners.cluster.backend import Job
from goal_sweep.runners.execution.job import CODE_DIGEST, source_hash
from goal_sweep.runners.store.provenance import gather
from tests.helpers.cluster_cases import job, submission

LEAST = ("ray.address=http://head:8265", "ray.store=/shared/store")


class Client:
    """Stands for Ray's client: keeps what is submitted, with the names and the code digest of what is sent."""

    def __init__(self, info: Any = None) -> None:
        self.info = info
        self.submitted: dict[str, Any] = {}
        self.stopped: list[str] = []

    def submit_job(self, **request: Any) -> str:
        folder = Path(request["runtime_env"]["working_dir"])
        self.submitted = request
        self.sent = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
        packages = [folder / "goal_sweep" / name for name in ("goal_core", "sweeps", "runners")]
        self.code = source_hash(packages) if packages[0].exists() else ""
        self.commit = {}
        if (record := folder / "goal_sweep/runners/store/built_from.json").exists():
            self.commit = json.loads(record.read_text())
        return str(request["submission_id"])

    def get_job_info(self, job: str) -> Any:
        return self.info

    def stop_job(self, job: str) -> None:
        self.stopped.append(job)

    def get_job_logs(self, job: str) -> str:
        return "one\ntwo\n"

    async def tail_job_logs(self, job: str) -> Any:
        for chunk in ("one\n", "two\nthree\n"):
            yield chunk


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(ray_jobs, "connect", lambda *_: made)
    return made


def made(tmp_path: Path, *more: str) -> Job:
    found = job(tmp_path, *LEAST, *more, store=tmp_path / "store")
    found.folder.mkdir(parents=True, exist_ok=True)
    return replace(found, working_dir=tmp_path)


def test_the_code_that_submits_is_sent_with_the_sweep_and_the_files(client: Client, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "soft.py").write_text("x = 1\n")
    sent = made(tmp_path, "ray.files=[plugins]", "ray.environment={GOAL_DATA: /data}", "ray.runtime_env={pip: [timm]}")
    assert ray_jobs.submit(sent) == sent.id
    assert {"sweep.yaml", "plugins/soft.py"} <= client.sent
    assert {"goal_sweep/analysis/__init__.py", "goal_sweep/runners/cli/__main__.py"} <= client.sent
    assert not [name for name in client.sent if "__pycache__" in name or name.startswith("tests")]
    assert client.code == CODE_DIGEST
    assert client.commit == {"git_commit": gather().git_commit, "git_diff": gather().git_diff}
    environment = client.submitted["runtime_env"]
    assert environment["pip"] == ["timm"]
    assert environment["env_vars"] == {
        "GOAL_DATA": "/data",
        "GOAL_SWEEP_CODE": sent.code,
        "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
        "RAY_JOB_STOP_SIGNAL": "SIGTERM",
        "RAY_JOB_STOP_WAIT_TIME_S": "30",
    }
    assert client.submitted["entrypoint"].startswith(
        "python -m goal_sweep.runners.cli launch sweep.yaml --address auto --store /shared/store"
    )


def test_what_is_printed_is_what_is_sent(client: Client, tmp_path: Path) -> None:
    sent = made(tmp_path)
    ray_jobs.submit(sent)
    shown, _, sweep = ray_jobs.render(sent).partition("\n# sweep.yaml\n")
    request = json.loads(shown)
    assert sweep == sent.sweep_text
    assert set(request.pop("files")) == {name if "." in name else f"{name}/" for name in client.sent if "/" not in name}
    assert request.pop("address") == "http://head:8265"
    client.submitted["runtime_env"]["working_dir"] = request["runtime_env"]["working_dir"]
    assert request == client.submitted


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("PENDING", None, ("pending", "pending: waiting", None)),
        ("RUNNING", None, ("running", "running", None)),
        ("SUCCEEDED", 0, ("ended", "succeeded", 0)),
        ("FAILED", 1, ("ended", "failed: waiting", 1)),
        ("STOPPED", None, ("ended", "stopped", None)),
    ],
)
def test_the_state_is_that_of_the_job(
    status: str, code: int | None, expected: tuple[Any, ...], client: Client, tmp_path: Path
) -> None:
    client.info = SimpleNamespace(status=SimpleNamespace(value=status), message="waiting", driver_exit_code=code)
    state = ray_jobs.state(submission("ray", address="http://head:8265"), tmp_path)
    assert (state.phase, state.said, state.status) == expected


def test_logs_and_cancellation(client: Client, tmp_path: Path) -> None:
    asked = submission("ray", address="http://head:8265")
    assert list(ray_jobs.logs(asked, tmp_path, follow=False)) == ["one", "two"]
    assert list(ray_jobs.logs(asked, tmp_path, follow=True)) == ["one", "two", "three"]
    ray_jobs.cancel(asked)
    assert client.stopped == ["tiny-0a1b2c-1"]


def test_a_job_that_lacks_a_file_is_refused(tmp_path: Path) -> None:
    ray_jobs.check(made(tmp_path))
    with pytest.raises(ConfigError, match=r"nowhere\.py does not exist"):
        ray_jobs.check(made(tmp_path, "ray.files=[nowhere.py]"))
