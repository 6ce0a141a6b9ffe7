"""Ray's client for jobs, which waits only so long, says nothing by itself, and sends the token that it was given."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runners.cluster.backend import ClusterError
from runners.execution.session.joining import MODE, TOKEN, TOKEN_FILE, TOKEN_PATH

_GREETING = "/api/version"
"""What the client asks first."""
_GREETING_S = 15
"""Seconds that a dashboard may take to say that it is there."""
_ANSWER_S = 120
"""Seconds that it may take for anything else, such as an upload."""
_CHATTY = ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk", "ray._private.runtime_env.packaging")
_OTHER_ADDRESSES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
"""Variables that Ray prefers to the address that it is given."""


def connect(address: str, token_file: str) -> Any:
    """Ray's client for jobs.

    Args:
        address: the dashboard's.
        token_file: a file with the cluster's token, which counts before Ray's variables; empty lets those count.

    Raises:
        ClusterError: the token file cannot be used.
        OSError: the dashboard does not answer, in time or at all.
    """
    import requests
    from ray.job_submission import JobSubmissionClient

    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)

    class Client(JobSubmissionClient):  # type: ignore[misc]  # Ray's class has no types
        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            limit = _GREETING_S if endpoint == _GREETING else _ANSWER_S
            try:
                return super()._do_request(method, endpoint, timeout=limit, **options)
            except requests.Timeout as error:
                raise TimeoutError(f"does not answer (waited {limit} s)") from error

    headers = {"Authorization": f"Bearer {_token(token_file)}"} if token_file else None
    with _unset(*_OTHER_ADDRESSES):
        try:
            return Client(address, headers=headers)
        except KeyError as error:
            raise ConnectionError("the server there is not a Ray dashboard") from error


def token_source(token_file: str, environ: Mapping[str, str] | None = None) -> str:
    """Where the token that is sent comes from, for a message."""
    environ = os.environ if environ is None else environ
    if token_file:
        return f"the token is that of cluster.ray.token_file, {token_file}"
    if environ.get(MODE, "").lower() != "token":
        return "no token was sent; cluster.ray.token_file names a file with it"
    return f"the token is that of {TOKEN if environ.get(TOKEN) else environ.get(TOKEN_PATH) or TOKEN_FILE}"


def _token(token_file: str) -> str:
    path = Path(token_file)
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        found = "is a folder" if path.is_dir() else "cannot be read" if path.exists() else "does not exist"
        raise ClusterError(f"the token file {path} {found} (cluster.ray.token_file)") from error
    if not text or len(text.split()) > 1:
        raise ClusterError(f"the token file {path} does not hold one token (cluster.ray.token_file)")
    return text


@contextmanager
def _unset(*names: str) -> Iterator[None]:
    """Hide environment variables for a moment."""
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
