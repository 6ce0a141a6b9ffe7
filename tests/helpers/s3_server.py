"""An S3 server on this machine (moto), that is busy, forgetful or refuses where a test wants it."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
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
    """A server in this process, on a free port of the loopback interface."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self.web: BaseWSGIServer = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_QuietHandler
        )
        self.url = f"http://127.0.0.1:{self.web.server_port}"
        self.requests: list[tuple[str, str]] = []
        """Method and path of each request."""
        self.before: Callable[[str, str], str] = lambda method, path: ""
        """Called with each method and path; may name the fault of this request."""

    def without_faults(self) -> None:
        """Answer every request as a server should."""
        self.before = lambda method, path: ""

    def make_bucket(self, name: str) -> None:
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(name, "us-east-1")

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path))
        fault = self.before(method, path)
        if fault == "busy":
            return _refuse(
                environ, start, "503 Slow Down", b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>"
            )
        if fault in _LASTING:
            return _refuse(environ, start, *_LASTING[fault])
        if fault == "unconditional":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if fault == "lost":
            list(self._app(environ, lambda *given: None))
            return _refuse(
                environ, start, "500 Error", b"<Error><Code>InternalError</Code><Message>lost</Message></Error>"
            )
        answer: Iterable[bytes] = self._app(environ, start)
        return answer


def _refuse(environ: dict[str, Any], start: Callable[..., Any], status: str, body: bytes) -> list[bytes]:
    if not status.startswith("500"):  # what is not read would be taken for the next request
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


@contextmanager
def served() -> Iterator[FaultyServer]:
    """Run a server in a thread of this process."""
    server = FaultyServer()
    thread = threading.Thread(target=server.web.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.web.shutdown()
        server.web.server_close()
        thread.join(timeout=5)
