"""A headless Chromium that a test drives: open a page, look, click. It speaks the DevTools protocol over two pipes."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
_ANSWER_S = 60.0


class Browser:
    """A browser with one page, in a window of so many pixels. A context manager."""

    def __init__(self, profile: Path) -> None:
        # Chromium reads commands from descriptor 3 and writes answers to 4, each ended by a zero byte.
        command_r, self._to = os.pipe()
        self._from, answer_w = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        flags += [f"--user-data-dir={profile}", "--window-size=1400,900", "--disable-background-networking"]
        script = f'exec 3<&{command_r} 4>&{answer_w}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", str(CHROMIUM), *flags, "about:blank"],
            pass_fds=(command_r, answer_w),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_r)
        os.close(answer_w)
        self._numbers, self._buffer, self._session = itertools.count(1), b"", ""
        (page,) = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)  # Chromium ends when its commands do
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Run a command of the protocol, and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._read())
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _read(self) -> bytes:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], _ANSWER_S)
            part = os.read(self._from, 1 << 16) if ready else b""
            assert part, "Chromium does not answer"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return message

    def open(self, url: str) -> None:
        """Load a page."""
        self.call("Page.navigate", url=url)

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def text(self) -> str:
        """What a reader sees."""
        return str(self.ask("document.body?.innerText ?? ''"))

    def wait_for(self, text: str, timeout: float = 60.0) -> None:
        """Wait until the page shows a text."""
        deadline = time.monotonic() + timeout
        while text not in self.text():
            assert time.monotonic() < deadline, f"the page does not show {text!r} but {self.text()[:3000]!r}"
            time.sleep(0.1)

    def click(self, text: str, selector: str = "a, button, [role=tab], [role=button]") -> None:
        """Click the middle of the first visible element whose text is this."""
        place = self.ask(
            f"""(() => {{
              const all = [...document.querySelectorAll({json.dumps(selector)})];
              const found = all.find(e => e.innerText.trim() === {json.dumps(text)} && e.offsetParent);
              if (!found) return null;
              found.scrollIntoView({{block: "center"}});
              const box = found.getBoundingClientRect();
              return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        assert place is not None, f"nothing to click is named {text!r} in {self.text()[:3000]!r}"
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
