"""What a profile of a GPU says: the trace is in the format of torch's profiler."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.trace import Trace


def event(category: str, name: str, start: float, took: float) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": 1000 * start, "dur": 1000 * took}


GPU = [
    {"ph": "M", "name": "process_name"},
    event("cpu_op", "aten::linear", 0, 3),
    event("cpu_op", "aten::addmm", 1, 1),
    event("cpu_op", "aten::item", 6.1, 3.8),
    event("cuda_runtime", "cudaStreamSynchronize", 6.2, 3.6),
    event("kernel", "gemm", 2, 4),
    event("kernel", "gemm", 10, 2),
    event("kernel", "copy", 5, 2),  # overlaps the first product on another stream
    event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 9.5, 0.5),
]


def test_busy_is_the_union_of_the_work() -> None:
    assert Trace(GPU, steps=2).busy_ms() == pytest.approx((5 + 0.5 + 2) / 2)


def test_tables_name_work_gaps_and_waits() -> None:
    tables = Trace(GPU, steps=2).tables()
    heaviest = tables["heaviest work"]
    assert list(heaviest) == ["1. gemm", "2. copy", "3. Memcpy DtoH (Device -> Pageable)"]
    assert heaviest["1. gemm"] == pytest.approx({"ms a step": 3.0, "share %": 100 * 6 / 8.5, "calls a step": 1.0})
    (gap,) = tables["longest gaps"].values()
    assert gap["ms"] == pytest.approx(2.5)
    assert (gap["the host was in"], gap["then came"]) == ("aten::item", "Memcpy DtoH (Device -> Pageable)")
    assert [name[3:] for name in tables["host waits"]] == [
        "aten::item",
        "cudaStreamSynchronize",
        "Memcpy DtoH (Device -> Pageable)",
    ]


def test_names_that_begin_alike_stay_apart() -> None:
    events = [event("kernel", f"{'k' * 90}{number}", number, 0.5) for number in range(3)]
    assert len(Trace(events).tables()["heaviest work"]) == 3


def test_on_a_cpu_operators_that_no_other_called_are_the_work() -> None:
    trace = Trace([item for item in GPU if item.get("cat") == "cpu_op"])
    assert [work.name for work in trace.work] == ["aten::linear", "aten::item"]
    (gap,) = trace.tables()["longest gaps"].values()
    assert gap["the host was in"] == "no operator"


def test_nothing_profiled_is_no_work() -> None:
    assert Trace().busy_ms() == 0
    assert Trace().tables() == {"heaviest work": {}, "longest gaps": {}, "host waits": {}}
