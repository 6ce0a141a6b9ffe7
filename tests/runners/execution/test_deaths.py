"""What ended a worker, how long its unit waits, and when it is given up."""

from __future__ import annotations

import pytest
from goal_sweep.runners.execution.deaths import MOST, Kind, pause_after, read_death

ID = "ab" * 28


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ray.exceptions.RayActorError: OutOfMemoryError: killed due to the node running low on memory", "memory"),
        ("ray.exceptions.ActorDiedError: The actor died because its node has died. Node Id: x", "machine"),
        ("runners.execution.inputs.UnfitMachineError: host: no such folder", "unfit"),
        ("ray.exceptions.ActorDiedError: The actor died unexpectedly. Worker exit type: SYSTEM_ERROR", "died"),
        ("", "died"),
    ],
)  # fmt: skip
def test_rays_words_are_told_apart(text: str, kind: Kind) -> None:
    death = read_death(f"Traceback\n  line\n{text} {ID}\n")
    assert death.kind == kind
    assert death.ids == {ID}


def pauses(kind: Kind) -> list[float | None]:
    return [pause_after(kind, count) for count in range(1, MOST[kind] + 1)]


def test_workers_that_die_before_they_begin_wait_longer_each_time_and_are_given_up_after_minutes() -> None:
    assert pauses("died") == [1, 2, 4, 8, 16, 32, 60, None]


def test_a_full_memory_is_waited_for_much_longer_and_not_for_ever() -> None:
    *seconds, last = pauses("memory")
    assert seconds[:4] == [10, 20, 40, 80]
    assert max(filter(None, seconds)) == 300
    assert sum(filter(None, seconds)) > 1800
    assert last is None


@pytest.mark.parametrize("kind", ["unfit", "machine"])
def test_what_a_machine_does_neither_waits_nor_counts(kind: Kind) -> None:
    assert pause_after(kind, 50) == 0.0
