"""Requests to an S3-compatible server through s3fs, repeated while the server is slow or away.

A request that the server *refuses*, because a condition does not hold, is told apart from one that *fails*. The first
is an answer. The second is tried again with growing pauses, and ends with a `StorageError` that names the object.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from goal_core.basics.atomic import StorageError
from goal_core.basics.errors import first_line
from runners.store.storage.interface import PATIENCE_S

T = TypeVar("T")
FIRST_S = 15.0
"""Seconds that a command repeats requests until the server has answered once; after that, `PATIENCE_S`."""
PAUSE = wait_random_exponential(multiplier=0.2, max=10)
"""Seconds between two tries: random, so that many processes do not come back at the same moment."""
_BUSY = frozenset({"RequestTimeout", "SlowDown", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch"})
_CONFLICT = "ConditionalRequestConflict"
_ADVICE = {
    "NoSuchBucket": "create the bucket first",
    "RequestTimeTooSkewed": "set this machine's clock",
    "NoCredentialsError": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role",
    "ParamValidationError": "check the name of the bucket",
}


class RefusedError(Exception):
    """The server answered that the condition of a request does not hold."""


class AwayError(Exception):
    """The server did not answer, or could not do it now."""


class _LastingError(Exception):
    """Waiting does not help."""


class Requests:
    """Requests about the objects of one bucket. Any number of threads may use it.

    Args:
        bucket: the bucket's name.
        endpoint: the server's address; empty for AWS_ENDPOINT_URL, or AWS itself.
        first: seconds to wait for the server's first answer.
    """

    def __init__(self, bucket: str, endpoint: str = "", *, first: float = FIRST_S) -> None:
        self._bucket, self._first, self._answered = bucket, first, False
        self._fs = _file_system(endpoint)

    def once(self, method: str, **arguments: Any) -> Any:
        """Make one request. The body of the answer, if there is one, is read whole.

        Args:
            method: a method of botocore's S3 client.
            **arguments: its arguments, but the bucket.

        Raises:
            RefusedError: a condition does not hold.
            FileNotFoundError: there is no such object.
            AwayError: another try may succeed.
        """
        from fsspec.asyn import sync

        async def call() -> Any:
            answer = await self._fs._call_s3(method, Bucket=self._bucket, **arguments)
            if "Body" in answer:
                async with answer["Body"] as body:
                    answer["Body"] = await body.read()
            return answer

        try:
            answer = sync(self._fs.loop, call)
        except Exception as error:
            raise _judged(error) from error
        self._answered = True
        return answer

    def ask(self, doing: str, method: str, **arguments: Any) -> Any:
        """As `once`, repeated while the server is slow or away.

        Args:
            doing: a verb for the message of an error.
            method: a method of botocore's S3 client.
            **arguments: its arguments, but the bucket.

        Raises:
            RefusedError: a condition does not hold.
            FileNotFoundError: there is no such object.
            StorageError: it fails.
        """
        key = str(arguments.get("Key", arguments.get("Prefix", "")))
        return self.repeated(doing, key, lambda: self.once(method, **arguments))

    def repeated(self, doing: str, key: str, act: Callable[[], T], patience: float | None = None) -> T:
        """Call a function that makes requests, again as long as it raises `AwayError`.

        Args:
            doing: a verb for the message of an error.
            key: the object.
            act: is safe to repeat.
            patience: seconds to repeat it; None for the usual.

        Raises:
            StorageError: it fails.
        """
        if patience is None:
            patience = PATIENCE_S if self._answered else self._first
        retrying = Retrying(
            retry=retry_if_exception_type(AwayError),
            wait=PAUSE,
            stop=stop_after_delay(patience),
            reraise=True,
        )
        what = f"cannot {doing} s3://{self._bucket}/{key}"
        try:
            return retrying(act)
        except AwayError as error:
            self._answered = False  # the next request waits less, until the server is back
            raise failure(errno.ETIMEDOUT, f"{what}: {error} (tried for {patience:.0f} s)") from error
        except _LastingError as error:
            raise failure(errno.EACCES, f"{what}: {error}") from error


def failure(code: int, message: str) -> StorageError:
    """An error of the storage with a number that says whether trying again may help."""
    error = StorageError(message)
    error.errno = code
    return error


def _judged(error: Exception) -> Exception:
    """What an error of a request means."""
    cause = error if hasattr(error, "response") else error.__cause__ or error
    response = getattr(cause, "response", None) or {}
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    said = first_line(cause if isinstance(cause, Exception) else error)
    if code in ("PreconditionFailed", "412") or status == 412:
        return RefusedError(said)
    if status == 404 and code != "NoSuchBucket":
        return FileNotFoundError(said)
    name = code or type(cause).__name__
    lasting = 400 <= status < 500 and status not in (408, 429) and code not in _BUSY and code != _CONFLICT
    if lasting or name in _ADVICE or status == 501:
        return _LastingError(f"{said}: {_ADVICE[name]}" if name in _ADVICE else said)
    return AwayError(said)


def _file_system(endpoint: str) -> Any:
    try:
        import s3fs
    except ImportError as error:
        raise StorageError(f"a store on S3 needs s3fs: pip install 'goal-sweep[s3]' ({error})") from error
    settings = {"max_pool_connections": 32, "retries": {"max_attempts": 0}}
    fs = s3fs.S3FileSystem(
        endpoint_url=endpoint or None,
        config_kwargs={**settings, "connect_timeout": 5, "read_timeout": 30},
        skip_instance_cache=True,
    )
    fs.retries = 1  # this module repeats requests itself, because it knows which and for how long
    return fs
