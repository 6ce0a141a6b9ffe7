"""What torch's profiler saw of some steps: the device's work, the gaps in it, and what the host waited for."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch.profiler import profile

from benchmarks.program import Row

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
WAITS = ("Synchronize", "aten::item", "aten::is_nonzero", "Pageable")
"""Parts of the names of what makes the host wait for the device, or a copy wait for the host."""


class Event(NamedTuple):
    """Something that ran, from and to in milliseconds."""

    start: float
    end: float
    name: str


class Trace:
    """The events of some steps.

    Args:
        events: in the format of Chrome's traces.
        steps: how many they are.
    """

    def __init__(self, events: Iterable[Mapping[str, Any]] = (), steps: int = 1) -> None:
        self._steps, kinds = steps, dict[str, list[Event]]()
        for shown in events:
            if shown.get("ph") == "X":
                event = Event(shown["ts"] / 1000, (shown["ts"] + shown.get("dur", 0)) / 1000, shown["name"])
                kinds.setdefault(shown.get("cat", ""), []).append(event)
        self._operators = sorted(kinds.get("cpu_op", []), key=lambda event: (event.start, -event.end))
        self._calls = [event for kind in ("cpu_op", "cuda_runtime", "gpu_memcpy") for event in kinds.get(kind, [])]
        self.work = sorted(event for kind in WORK for event in kinds.get(kind, []))
        """Kernels and copies of a GPU; on a CPU operators that no other operator called."""
        if not self.work:
            for event in self._operators:
                if not self.work or event.start >= self.work[-1].end:
                    self.work.append(event)

    @classmethod
    def of(cls, profiler: profile, steps: int) -> Trace:
        """The trace of a profiler that has stopped."""
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch, "trace.json")
            profiler.export_chrome_trace(str(path))
            return cls(json.loads(path.read_text())["traceEvents"], steps)

    def busy_ms(self) -> float:
        """Milliseconds of a step in which the device worked."""
        total, until = 0.0, 0.0
        for event in self.work:
            total += max(0.0, event.end - max(event.start, until))
            until = max(until, event.end)
        return total / self._steps

    def tables(self) -> dict[str, dict[str, Row]]:
        """What took most of the device's time, the longest times without work, and the host's waits; ten of each."""
        gaps, until = list[tuple[float, float, str]](), self.work[0].end if self.work else 0.0
        for event in self.work[1:]:
            gaps.append((event.start - until, (event.start + until) / 2, event.name))
            until = max(until, event.end)
        longest = enumerate(sorted((gap for gap in gaps if gap[0] > 0), reverse=True)[:10], 1)
        return {
            "heaviest work": self._by_name(self.work),
            "longest gaps": {f"{number}": {"ms": ms, "the host was in": self._at(moment), "then came": name[:80]}
                             for number, (ms, moment, name) in longest},
            "host waits": self._by_name(event for event in self._calls if any(part in event.name for part in WAITS)),
        }  # fmt: skip

    def _by_name(self, events: Iterable[Event]) -> dict[str, Row]:
        names: dict[str, list[float]] = {}
        for event in events:
            names.setdefault(event.name, []).append(event.end - event.start)
        total, rows = sum(map(sum, names.values())) or 1.0, dict[str, Row]()
        for name, times in sorted(names.items(), key=lambda item: -sum(item[1]))[:10]:
            took, calls = sum(times) / self._steps, len(times) / self._steps
            row = {"ms a step": took, "share %": 100 * sum(times) / total, "calls a step": calls}
            rows[f"{len(rows) + 1}. {name[:80]}"] = row  # numbered, for names may begin alike
        return rows

    def _at(self, moment: float) -> str:
        """The innermost operator that the host was in."""
        within = [event for event in self._operators if event.start <= moment <= event.end]
        return max(within).name[:80] if within else "no operator"
