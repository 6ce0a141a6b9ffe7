"""Storage in a bucket: small files directly, and what a library writes or reads through a working copy.

A path of the store stands for the object of the same name. Under the path itself lies the working copy of a file that
this process has saved or fetched; it belongs to this process alone, and nobody else reads it.

obstore repeats requests while the server is slow or away, and goes on with broken downloads. It finds no credentials in
``~/.aws``; botocore, which AWS's own tools use, does.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.atomic import StorageError, perform
from goal_sweep.goal_core.basics.errors import first_line
from goal_sweep.runners.store.storage import PATIENCE_S, ExpiredCredentialsError, R, Storage, T, Task, Written

if TYPE_CHECKING:
    from obstore.store import BackoffConfig, ClientConfig, S3Credential, S3Store

PART = 5 * 2**20
"""Bytes of a large object that travel in one request. The smallest that S3 allows."""
_READINGS = 16
FIRST_S = 15.0
"""Seconds that a command waits for the server's first answer; for those after it, `PATIENCE_S`."""
_REQUESTS = 32
BACKOFF: BackoffConfig = {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=10), "base": 2}
"""Pauses between two tries, of random length, so that many processes do not come back at the same moment."""
_SILENCE_S, _CONNECT_S = 60.0, 5.0
"""Seconds without an answer after which a request has failed; also those that a part of an upload may take."""
_KEPT = timedelta(minutes=6)
"""obstore asks for credentials anew five minutes before they end, so this asks once a minute."""
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
_UNKNOWN_KEY = frozenset({"NoCredentials", "InvalidAccessKeyId", "InvalidToken", "InvalidTokenId"})
"""If the server has answered before: some servers say so of a key that has expired."""
_RENEWED = "the credentials have expired; a role or a credential_process in ~/.aws/config renews them by itself"
_ADVICE = {
    "NoSuchBucket": "create the bucket first",
    "RequestTimeTooSkewed": "set this machine's clock",
    "PermanentRedirect": "set AWS_REGION to that of the bucket",
    "AuthorizationHeaderMalformed": "set AWS_REGION to that of the bucket",
    "NoCredentials": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role",
}


class RefusedError(Exception):
    """The server answered that the condition of a request does not hold."""


class ObjectStorage(Storage):
    """Files as objects of a bucket. Any number of threads may use it.

    Raises `StorageError` where obstore is not installed, or the server's address is none.

    Args:
        prefix: what all keys begin with, without a slash at its end.
        base: the path that stands for it, in a folder of this process's own.
        first: seconds to wait for the server's first answer.
    """

    def __init__(self, bucket: str, prefix: str, base: Path, *, first: float = FIRST_S) -> None:
        make = _client_maker(bucket, prefix)
        import obstore

        self._api: Any = obstore
        self._base = base
        self._url = f"s3://{bucket}/{prefix}/" if prefix else f"s3://{bucket}/"
        self._answered, self._clients = False, (make(first), make(PATIENCE_S))
        self._requests = ThreadPoolExecutor(_REQUESTS, thread_name_prefix="goal-sweep request")
        self._checked = False
        self._background = ThreadPoolExecutor(1, thread_name_prefix="goal-sweep reading")
        self._asked: dict[Path, Future[bool]] = {}

    def _key(self, path: Path) -> str:
        return "/".join(path.relative_to(self._base).parts)

    def _ask(self, doing: str, path: Path, act: Callable[[Any, str], T]) -> T:
        """Call a function with a client and the key of a path.

        Raises:
            RefusedError: a condition does not hold.
            FileNotFoundError: there is no such object.
            ExpiredCredentialsError: the credentials do not work any more.
            StorageError: it fails.
        """
        key, began = self._key(path), time.monotonic()
        try:
            # In another thread, because a signal reaches Python only where the main thread runs Python.
            answer = self._requests.submit(act, self._clients[self._answered], key).result()
        except Exception as error:
            tried = time.monotonic() - began
            why = _meaning(error, f"cannot {doing} {self.shown(path)}", answered=self._answered, tried_s=tried)
            if isinstance(why, StorageError):
                self._answered &= why.errno != errno.ETIMEDOUT  # the next request waits less, until the server is back
            else:
                self._answered = True
            raise why from error.__cause__ if why is error else error
        self._answered = True
        return answer

    def prepare(self, folders: Iterable[Path]) -> None:
        if self._checked:
            return
        probe = self._base / f".check-{secrets.token_hex(4)}"
        self.replace(probe, b"one")
        try:
            self._checked = not self.create(probe, b"two")
        finally:
            self.remove(probe)
        if not self._checked:
            raise StorageError(
                f"the server of {self.shown(self._base)} ignores conditional writes (If-None-Match), so nothing keeps "
                "two launches from training the same cell; use a server that honours them (AWS S3, MinIO, Ceph, ...), "
                "or a folder"
            )

    def make_folder(self, folder: Path) -> None:
        """Nothing: objects need no folder."""

    def shown(self, path: Path) -> str:
        return f"{self._url}{self._key(path)}"

    def read(self, path: Path) -> bytes | None:
        content = io.BytesIO()
        return content.getvalue() if self._pass_on(path, content.write) else None

    def replace(self, path: Path, content: bytes) -> None:
        self._put(path, content)

    def create(self, path: Path, content: bytes, *, guard: Task | None = None) -> bool:
        if guard is not None:
            guard()
        try:
            self._put(path, content, mode="create")
        except RefusedError:
            # A try whose answer was lost may have created it.
            return self.read(path) == content
        return True

    def written(self, path: Path) -> Written | None:
        return self._in(path.parent).get(path)

    def entries(self, folder: Path) -> list[Path]:
        return list(self._in(folder))

    def files(self, folder: Path, *, below: bool = False) -> dict[Path, Written]:
        if not below:
            return {path: written for path, written in self._in(folder).items() if written is not None}

        def read(client: Any, key: str) -> list[Any]:
            return list(chain.from_iterable(self._api.list(client, key or None, chunk_size=1000)))

        found = ((self._base / each["path"], _written(each)) for each in self._ask("list", folder, read))
        return {path: written for path, written in found if path != folder}

    def appeared(self, path: Path) -> bool:
        asked = self._asked.get(path)
        if asked is not None and not asked.done():
            return False
        self._asked[path] = self._background.submit(super().appeared, path)
        return asked is not None and asked.result()

    def digest(self, path: Path) -> str:
        digest = hashlib.sha256()
        if not self._pass_on(path, digest.update):
            raise failure(errno.ENOENT, f"cannot read {self.shown(path)}: there is no such object")
        return digest.hexdigest()

    def remove(self, path: Path) -> None:
        self._ask("remove", path, self._api.delete)
        path.unlink(missing_ok=True)

    def save_with(self, path: Path, write: Callable[[Path], object], *, guard: Task) -> None:
        atomic.make_folder(path.parent)
        atomic.replace_with(path, write)
        try:
            guard()
            self._put(path, path)
        except BaseException:
            path.unlink(missing_ok=True)  # the working copy is never newer than the object
            raise
        guard()

    def append(self, path: Path, content: bytes, *, writer: int) -> None:
        own = path.with_name(f"{path.stem}.{writer}{path.suffix}")
        atomic.make_folder(own.parent)

        def write() -> None:
            with own.open("ab") as file:
                file.write(content)

        perform("append", own, write, doing="write")
        # A line of a log may be missing until the next one; a training must not fail for it.
        with contextlib.suppress(StorageError):
            self._put(own, atomic.read_bytes(own) or b"")

    def fetch(self, path: Path) -> Path:
        if path.exists():
            return path
        atomic.make_folder(path.parent)
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")

        def write() -> None:
            with fresh.open("wb") as file:
                is_there = self._pass_on(path, file.write)
            if is_there:
                fresh.replace(path)

        try:
            perform("write", path, write, doing="write")
        finally:
            fresh.unlink(missing_ok=True)
        return path

    def close(self) -> None:
        shutil.rmtree(self._base, ignore_errors=True)

    def each(self, act: Callable[[T], R], items: Sequence[T]) -> list[R]:
        with ThreadPoolExecutor(_READINGS, thread_name_prefix="goal-sweep reading") as pool:
            return list(pool.map(act, items))

    def _in(self, folder: Path) -> dict[Path, Written | None]:
        """What is right in a folder: files, and folders with None."""
        found = self._ask("list", folder, lambda client, key: self._api.list_with_delimiter(client, key or None))
        folders = {self._base / key: None for key in found["common_prefixes"]}
        files = {self._base / each["path"]: _written(each) for each in found["objects"]}
        return {path: written for path, written in {**folders, **files}.items() if path != folder}

    def _pass_on(self, path: Path, take: Callable[[bytes], object]) -> bool:
        """Pass on the content of an object, part by part; False if there is none."""

        def read(client: Any, key: str) -> None:
            for part in self._api.get(client, key).stream(PART):
                take(part)

        try:
            self._ask("read", path, read)
        except FileNotFoundError:
            return False
        return True

    def _put(self, path: Path, content: bytes | Path, mode: str = "overwrite") -> None:
        """Write an object, in parts if it is large, with all of its content or with that of a file."""
        how = {"mode": mode, "chunk_size": PART, "max_concurrency": 4}
        self._ask("write", path, lambda client, key: self._api.put(client, key, content, **how))


def _written(meta: Any) -> Written:
    since = meta["last_modified"] - datetime(1970, 1, 1, tzinfo=UTC)
    return Written(bytes=meta["size"], modified_ns=since // timedelta(microseconds=1) * 1000)


def _client_maker(bucket: str, prefix: str) -> Callable[[float], S3Store]:
    """Prepare to make clients, which repeat a failing request for so many seconds. Nothing is sent."""
    try:
        from botocore.session import get_session
        from obstore.store import S3Store
    except ImportError as error:
        raise StorageError(f"a store on S3 needs obstore: pip install 'goal-sweep[s3]' ({error})") from error
    address = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    if address and not re.match(r"https?://[^/]", address):
        raise StorageError(f"the address of the server must begin with http:// or https://, got {address!r}")
    options: ClientConfig = {
        "allow_http": True,
        "connect_timeout": timedelta(seconds=_CONNECT_S),
        "read_timeout": timedelta(seconds=_SILENCE_S),
        "timeout": timedelta(days=1),
    }
    if bundle := os.environ.get("AWS_CA_BUNDLE"):
        with atomic.storage_errors(Path(bundle), "read"):
            options["root_certificate"] = Path(bundle).read_bytes()
    config: dict[str, Any] = {"endpoint": address} if address else {}
    region = os.environ.get("AWS_REGION") or get_session().get_config_variable("region") or "us-east-1"
    credentials = _credentials()

    def client(patience: float) -> S3Store:
        return S3Store(
            bucket,
            prefix=prefix or None,
            **config,
            region=region,
            disable_bulk_delete=True,  # which not every server knows
            credential_provider=credentials,
            client_options=options,
            retry_config={"max_retries": 10_000, "retry_timeout": timedelta(seconds=patience), "backoff": BACKOFF},
        )

    return client


def _credentials() -> Callable[[], S3Credential]:
    """A source of credentials as AWS's own tools find them: environment, ~/.aws, roles, credential_process."""
    from botocore.credentials import RefreshableCredentials
    from botocore.session import get_session

    held: Any = None

    def get() -> S3Credential:
        nonlocal held
        if not isinstance(held, RefreshableCredentials):  # which renew themselves; others may have been written anew
            held = get_session().get_credentials()
        if held is None:
            raise ValueError("no credentials were found")
        now = held.get_frozen_credentials()
        return {
            "access_key_id": now.access_key,
            "secret_access_key": now.secret_key,
            "token": now.token,
            "expires_at": datetime.now(UTC) + _KEPT,
        }

    return get


def _meaning(error: Exception, what: str, *, answered: bool, tried_s: float) -> Exception:
    """What an error of obstore means, which has the server's answer in its text alone. Other errors stay as they are.

    A `StorageError` has ``errno.EACCES`` if waiting does not help, and ``errno.ETIMEDOUT`` if the server was away.
    """
    from obstore import exceptions

    if not isinstance(error, exceptions.BaseError | FileNotFoundError):
        return error
    text, said = str(error), re.split(r" - |provider: ", first_line(error))[-1]
    answer, code = re.search(r"non-2xx status code: (\d+)", text), _first(r"<Code>(\w+)</Code>", text)
    if isinstance(error, exceptions.UnauthenticatedError) and not answer:
        code = "NoCredentials"
    elif answer and code:
        said = f"{code}: {_first('<Message>([^<]*)</Message>', text)}"
    if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
        return RefusedError(said)
    if isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
        return FileNotFoundError(said)
    if code in _EXPIRED or (answered and code in _UNKNOWN_KEY):
        return failure(errno.EACCES, f"{what}: {said}: {_RENEWED}", ExpiredCredentialsError)
    if code in _ADVICE or (answer and 400 <= int(answer[1]) < 500):
        return failure(errno.EACCES, f"{what}: {said}" + (f": {_ADVICE[code]}" if code in _ADVICE else ""))
    reason = _first(r'(?:message|error): "([^"]*)"', text)  # why it could not connect
    why = f"{reason}; tried" if reason else "tried"
    return failure(errno.ETIMEDOUT, f"{what}: {said} ({why} for {tried_s:.0f} s)")


def failure(code: int, message: str, kind: type[StorageError] = StorageError) -> StorageError:
    """An error of the storage with a number that says whether trying again may help."""
    error = kind(message)
    error.errno = code
    return error


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""
