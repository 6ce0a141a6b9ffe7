"""A running Ray cluster, through Ray's Jobs API."""

import asyncio
import json
import logging
import os
import shutil
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

from goal_sweep import goal_core
from goal_sweep.goal_core.basics.atomic import replace_bytes, scratch_folder
from goal_sweep.goal_core.basics.errors import ConfigError, GoalError, first_line
from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.runners.cluster import backend
from goal_sweep.runners.cluster.backend import ClusterError, Job, JobState, NoAnswerError, Submission
from goal_sweep.runners.store.provenance import BUILT_FROM, gather

_GREETING_S = 15
"""Seconds that a dashboard may take to say that it is there."""
_CHATTY = ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk", "ray._private.runtime_env.packaging")
_OTHER_ADDRESSES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
"""Variables that Ray prefers to the address that it is given."""
_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", ".git", ".venv", "node_modules")
_STOP_S = 30
"""Seconds that Ray waits after SIGTERM: a launch takes 20 to save and 5 for tracking."""


def connect(address: str) -> Any:
    """Ray's client for jobs, which says nothing by itself.

    Raises `OSError` where the dashboard does not answer, in time or at all.
    """
    try:  # the client would wait for it without end
        with urllib.request.urlopen(f"{address.rstrip('/')}/api/version", timeout=_GREETING_S):
            pass
    except (OSError, HTTPException) as error:  # the client explains all others
        if isinstance(getattr(error, "reason", error), TimeoutError):
            raise TimeoutError(f"does not answer (waited {_GREETING_S} s)") from error
    from ray.job_submission import JobSubmissionClient

    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    hidden = {name: os.environ.pop(name) for name in _OTHER_ADDRESSES if name in os.environ}
    try:
        return JobSubmissionClient(address)
    except KeyError as error:
        raise ConnectionError("the server there is not a Ray dashboard") from error
    finally:
        os.environ.update(hidden)


def check(job: Job) -> list[str]:
    """Refuse a job without an address, and one whose variables or files are missing."""
    settings = job.cluster.ray
    if not settings.address:
        raise ConfigError("cluster.ray.address is needed: that of Ray's dashboard, such as http://head:8265")
    backend.check_variables(job, "ray", settings.environment)
    for name in settings.files:
        if not (job.working_dir / name).exists():
            raise ConfigError(f"cluster.ray.files: {name} does not exist")
    return []


def render(job: Job) -> str:
    """What the Jobs API gets, as JSON, and the sweep file."""
    sent = ["sweep.yaml", *job.cluster.ray.files, "goal_sweep/"]
    request = {"address": job.cluster.ray.address, **_request(job, "<the files below>"), "files": sent}
    return f"{json_bytes(request, seal=False).decode()}\n# sweep.yaml\n{job.sweep_text}"


def submit(job: Job) -> str:
    """Upload what the job needs, and start it."""
    replace_bytes(job.folder / "sweep.yaml", job.sweep_text.encode())
    with _working_dir(job) as folder, _client(job.cluster.ray.address) as client:
        return str(client.submit_job(**_request(job, str(folder))))


def state(submission: Submission, folder: Path) -> JobState:
    """Ask for the job's status."""
    with _client(submission.address) as client:
        try:
            info = client.get_job_info(submission.id)
        except RuntimeError as error:
            if "404" not in str(error) and "does not exist" not in str(error):
                raise
            return JobState(phase="unknown", said="Ray does not know it (any more)")
    state = str(getattr(info.status, "value", info.status))
    message = " ".join(str(info.message or "").split())
    said = f"{state.lower()}: {message}" if message and state in ("PENDING", "FAILED") else state.lower()
    if state in ("PENDING", "RUNNING"):
        return JobState(phase="pending" if state == "PENDING" else "running", said=said)
    return JobState(phase="ended", said=said, status=getattr(info, "driver_exit_code", None))


def cancel(submission: Submission) -> None:
    """Let Ray stop the driver: SIGTERM first, at which every training saves, and SIGKILL after 30 seconds."""
    with _client(submission.address) as client:
        client.stop_job(submission.id)


def logs(submission: Submission, folder: Path, *, follow: bool) -> Iterator[str]:
    """The driver's output."""
    with _client(submission.address) as client:
        if not follow:
            yield from client.get_job_logs(submission.id).splitlines()
            return
        lines = client.tail_job_logs(submission.id)
        with asyncio.Runner() as runner:
            while (text := runner.run(_next(lines))) is not None:
                yield from text.splitlines()


@contextmanager
def _client(address: str) -> Iterator[Any]:
    """The client, with errors of Ray in one line.

    Raises `NoAnswerError` where the cluster may have done what it was asked for; `ClusterError` where the cluster
    cannot be reached, or refuses.
    """
    client = None
    try:
        client = connect(address)
        yield client
    except ImportError as error:
        raise ClusterError("Ray's Jobs API needs ray[default]: pip install 'goal-sweep[jobs]'") from error
    except GoalError:
        raise
    except Exception as error:  # Ray's own errors have no base that can be named without loading Ray
        if not isinstance(error, (OSError, RuntimeError)) and not type(error).__module__.startswith("ray."):
            raise
        said = f"Ray at {address}: {_reason(error)}"
        if type(error).__name__ == "AuthenticationError":
            said += "; the token is that of RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
        lost = client is not None and isinstance(error, OSError)
        raise (NoAnswerError if lost else ClusterError)(said) from error


async def _next(lines: AsyncIterator[str]) -> str | None:
    return await anext(lines, None)


def _reason(error: Exception) -> str:
    """Why Ray refused: of a traceback in an answer, the last line."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].rstrip(".\"'") if any("Traceback" in line for line in lines) else first_line(error)


def _request(job: Job, working_dir: str) -> dict[str, Any]:
    settings = job.cluster.ray
    variables = {
        **settings.environment,
        "GOAL_SWEEP_CODE": job.code,
        # The driver sets variables of its workers again; without this, Ray takes that for a contradiction.
        "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
        "RAY_JOB_STOP_SIGNAL": "SIGTERM",
        "RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_S),
    }
    return {
        "submission_id": job.id,
        "entrypoint": backend.launch_command(job, "sweep.yaml", settings.store or job.store, settings.tracking),
        "runtime_env": {"working_dir": working_dir, "env_vars": variables, **settings.runtime_env},
        "metadata": {"sweep": job.config.name},
    }


@contextmanager
def _working_dir(job: Job) -> Iterator[Path]:
    with scratch_folder() as folder:
        (folder / "sweep.yaml").write_text(job.sweep_text)
        for source in [*(job.working_dir / one for one in job.cluster.ray.files), Path(goal_core.__path__[0]).parent]:
            if source.is_dir():
                shutil.copytree(source, folder / source.name, ignore=_SKIPPED)
            else:
                shutil.copy2(source, folder / source.name)
        here = gather()
        record = {"git_commit": here.git_commit, "git_diff": here.git_diff}
        (folder / "goal_sweep" / "runners" / "store" / BUILT_FROM).write_text(json.dumps(record), encoding="utf-8")
        yield folder
