"""An S3 server on this machine (moto), that is busy, slow, away or forgetful where a test wants it.

``python -m tests.helpers.s3_server PORT`` runs one. ``GET /-/faults?busy=0.2&lost=0.1&slow=0.5`` sets the shares of
requests that are refused with 503, done but answered with 500, and delayed by a second; ``away=SECONDS`` leaves all of
them without an answer for a while. `bucket?name=NAME` makes a bucket, and `requests` gives the method and path of each
request so far as JSON.
"""

import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
_FAULTS = ("busy", "lost", "slow")
_LASTING = {
    "denied": ("403 Forbidden", b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"),
    "skewed": ("403 Forbidden", b"<Error><Code>RequestTimeTooSkewed</Code><Message>too far</Message></Error>"),
    "expired": ("400 Bad Request", b"<Error><Code>ExpiredToken</Code><Message>it has expired</Message></Error>"),
    "unknown": ("403 Forbidden", b"<Error><Code>InvalidAccessKeyId</Code><Message>who?</Message></Error>"),
}


class _QuietHandler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class FaultyServer:
    """A server in this process, on a port of the loopback interface, 0 for a free one."""

    def __init__(self, port: int = 0) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer = make_server(
            "127.0.0.1", port, self._answer, threaded=True, request_handler=_QuietHandler
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.requests: list[tuple[str, str]] = []
        """Method and path of each request."""
        self.shares = dict.fromkeys(_FAULTS, 0.0)
        self.away_until = 0.0
        self.before: Callable[[str, str], str] = lambda method, path: ""
        """Called with each method and path; may name the fault of this request."""
        self._random = random.Random(7)

    def without_faults(self) -> None:
        """Answer every request as a server should."""
        self.shares, self.away_until = dict.fromkeys(_FAULTS, 0.0), 0.0
        self.before = lambda method, path: ""

    def make_bucket(self, name: str) -> None:
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(name, "us-east-1")

    def serve(self) -> None:
        """Answer requests until `close`."""
        self._server.serve_forever()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path.startswith("/-/"):
            content = self._controlled(path, dict(parse_qsl(environ["QUERY_STRING"])))
            start("200 OK", [("Content-Length", str(len(content)))])
            return [content]
        self.requests.append((method, path))
        fault = self.before(method, path) or self._drawn()
        if time.monotonic() < self.away_until:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        if fault == "busy":
            return _refuse(
                environ, start, "503 Slow Down", b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>"
            )
        if fault in _LASTING:
            return _refuse(environ, start, *_LASTING[fault])
        if fault == "unconditional":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if fault == "slow":
            time.sleep(1.0)
        if fault == "lost":
            list(self._app(environ, lambda *given: None))
            return _refuse(
                environ, start, "500 Error", b"<Error><Code>InternalError</Code><Message>lost</Message></Error>"
            )
        answer: Iterable[bytes] = self._app(environ, start)
        return answer

    def _controlled(self, path: str, asked: dict[str, str]) -> bytes:
        """Do what another process asks for, which has only the address."""
        if path == "/-/faults":
            self.away_until = time.monotonic() + float(asked.get("away", 0))
            self.shares = {name: float(asked.get(name, 0)) for name in _FAULTS}
        elif path == "/-/bucket":
            self.make_bucket(asked["name"])
        return json.dumps(self.requests).encode()

    def _drawn(self) -> str:
        return next((name for name, share in self.shares.items() if self._random.random() < share), "")


def _refuse(environ: dict[str, Any], start: Callable[..., Any], status: str, body: bytes) -> list[bytes]:
    if not status.startswith("500"):  # what is not read would be taken for the next request
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


@contextmanager
def served(port: int = 0) -> Iterator[FaultyServer]:
    """Run a server in a thread of this process."""
    server = FaultyServer(port)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(timeout=5)


if __name__ == "__main__":
    FaultyServer(int(sys.argv[1])).serve()
