"""The devices at hand: what Ray and this machine have, and what keeps GPUs idle."""

import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from goal_sweep.runners.execution.session import Resources
from goal_sweep.runners.planning.devices import of_machines, to_plan_for
from tests.helpers.planning_cases import machine


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What the driver of this machine says of its GPUs; it has 16 cores."""
    said: dict[str, list[str]] = {"name": [], "memory.total": []}

    def run(command: Sequence[str], **options: object) -> Any:
        (what,) = (word.partition("=")[2] for word in command if word.startswith("--query-gpu="))
        if not said[what]:
            raise FileNotFoundError(command[0])
        return type("Done", (), {"stdout": "\n".join(said[what]) + "\n"})

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    return said


def test_devices_are_what_ray_reports_and_fits() -> None:
    large = machine(CPU=32, GPU=4, accelerator_type__H100=1)
    halves = of_machines([large, machine(CPU=4, GPU=1), machine(CPU=64)], Resources(cpus=8, gpus=0.5))
    assert (halves.count, halves.memory_mb, halves.gpu) == (4, 40_000, "H100")
    none = of_machines([machine(CPU=64)], Resources(cpus=8, gpus=1))
    assert none.count == 1
    assert "no machine has what a unit needs, 8 CPU and 1 GPU" in none.notes[0]
    cores = of_machines([machine(CPU=4, memory=8e9)], Resources(cpus=2, gpus=0))
    assert (cores.count, cores.memory_mb) == (2, 4000)
    small = machine(CPU=16, GPU=2, accelerator_type__T4=1)
    assert of_machines([large, small], Resources(cpus=4, gpus=1)).memory_mb == 16_000


@pytest.mark.parametrize(
    ("cpus", "machines", "count", "numbers"),
    [
        (8, [(8, 8)], 1, ("1 of the 8 units", "8 of 8 CPUs", "64 CPUs", "resources.cpus=1 ")),
        (8, [(16, 8), (64, 8)], 10, ("10 of the 16 units", "8 of 80 CPUs", "128 CPUs", "resources.cpus=2 ")),
        (2, [(4, 8)], 2, ("2 of the 8 units", "2 of 4 CPUs", "16 CPUs")),
    ],
)
def test_gpus_that_idle_for_want_of_cpus_are_named_with_the_cpus_that_would_do(
    cpus: int, machines: list[tuple[int, int]], count: int, numbers: tuple[str, ...]
) -> None:
    found = of_machines([machine(CPU=has, GPU=gpus) for has, gpus in machines], Resources(cpus=cpus, gpus=1))
    assert found.count == count
    said = " ".join(found.notes)
    assert all(number in said for number in numbers)


def test_a_plan_and_a_launch_on_this_machine_see_the_same_gpus(driver: dict[str, list[str]]) -> None:
    driver |= {"name": ["NVIDIA H100"] * 2, "memory.total": ["81559"] * 2}
    need = Resources(cpus=2, gpus=1)
    ray = [machine(CPU=16, GPU=2, accelerator_type__H100=1, memory=8e9)]
    planned = to_plan_for(need, None)
    assert planned == of_machines(ray, need, here=True)
    assert (planned.count, planned.gpu) == (2, "NVIDIA H100")
    assert planned.memory_mb == pytest.approx(85_520.8, abs=0.1)
    assert of_machines(ray, need).memory_mb == 80_000  # nobody asks the machines of a cluster
    driver["memory.total"] = ["[N/A]"]
    assert (to_plan_for(need, None).count, to_plan_for(need, None).memory_mb) == (1, None)


@pytest.mark.parametrize(
    ("cpus", "gpus", "has", "note"),
    [
        (16, 1, 2, ""),
        (16, 0, 0, ""),
        (4, 0.5, 0, "a unit needs 4 CPU and 0.5 GPU, this machine has 16 CPU and 0 GPU"),
        (32, 0, 0, "a unit needs 32 CPU and 0 GPU, this machine has 16 CPU and 0 GPU"),
    ],
)
def test_a_plan_says_which_devices_this_machine_does_not_have(
    driver: dict[str, list[str]], cpus: int, gpus: float, has: int, note: str
) -> None:
    driver["memory.total"] = ["80000"] * has
    notes = to_plan_for(Resources(cpus=cpus, gpus=gpus), None).notes
    assert any(note in one for one in notes) if note else not any("this machine has" in one for one in notes)
    named = to_plan_for(Resources(cpus=cpus, gpus=gpus), 3)
    assert named.count == 3
    assert any(f"{3 * cpus} CPUs" in one for one in named.notes) == bool(gpus)


@pytest.mark.parametrize(
    ("accelerator", "gpu", "memory_mb"),
    [("H200", "H200", 141_000), ("X1", "X1", None), ("RTX 3090", "NVIDIA GeForce RTX 3090", 25_769.8)],
)
def test_a_plan_for_another_kind_of_gpu_has_its_memory_and_counts_those_of_this_machine(
    driver: dict[str, list[str]], accelerator: str, gpu: str, memory_mb: float | None
) -> None:
    driver |= {"name": ["NVIDIA GeForce RTX 3090"] * 4, "memory.total": ["24576"] * 4}
    found = to_plan_for(Resources(cpus=4, gpus=1, accelerator=accelerator), None)
    assert (found.count, found.gpu, found.notes) == (4, gpu, ())
    assert found.memory_mb == (None if memory_mb is None else pytest.approx(memory_mb, rel=1e-5))
