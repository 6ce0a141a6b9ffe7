"""The simulated schedule: small cases that a person can check, and what holds for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.launch.simulation import PlannedUnit, simulate


def units(*seconds: float) -> list[PlannedUnit]:
    return [PlannedUnit(seconds=one, rank=(0, -one)) for one in seconds]


def test_units_start_longest_first_and_end_where_they_must() -> None:
    found = simulate(units(1, 5, 4, 2), 2)
    # One device has 5 and 1, the other 4 and 2.
    assert (found.end_s, found.work_s, found.bound_s, found.tail_s) == (6, 12, 6, 0)
    assert found.starts == (5, 0, 0, 4)
    assert found.idle == 0


def test_a_unit_waits_for_its_own_predecessor_and_for_no_other() -> None:
    chain = [
        PlannedUnit(seconds=10),
        PlannedUnit(seconds=2),
        PlannedUnit(seconds=3, after=0, rank=(1, 0)),
        PlannedUnit(seconds=3, after=1, rank=(1, 0)),
    ]
    found = simulate(chain, 2)
    assert found.starts == (0, 0, 10, 2)
    assert (found.end_s, found.critical_s, found.tail_s) == (13, 13, 8)
    assert found.idle == pytest.approx(1 - 18 / 26)


def test_an_earlier_stage_comes_first_where_a_device_is_free_for_one() -> None:
    chain = [
        PlannedUnit(seconds=1),
        PlannedUnit(seconds=9, after=0, rank=(1, -9)),
        PlannedUnit(seconds=1, rank=(0, -1)),
    ]
    assert simulate(chain, 1).starts == (1, 2, 0)


def test_what_is_made_once_costs_those_that_start_before_it_is_there() -> None:
    three = [PlannedUnit(seconds=10, once="features", once_s=5) for _ in range(3)]
    assert simulate(three, 2).end_s == 25
    assert simulate(three, 3).end_s == 15
    assert simulate(three, 1).work_s == 35


def test_devices_without_work_are_idle_to_the_end() -> None:
    found = simulate(units(4, 4), 8)
    assert (found.end_s, found.tail_s, found.idle) == (4, 4, 0.75)
    assert simulate([], 3).end_s == simulate([], 3).idle == 0


@given(
    seconds=st.lists(st.integers(1, 50), min_size=1, max_size=30),
    parents=st.lists(st.integers(0, 40), min_size=30, max_size=30),
    devices=st.integers(1, 12),
)
def test_no_schedule_beats_its_bound_or_is_twice_as_long(seconds: list[int], parents: list[int], devices: int) -> None:
    chain = [
        PlannedUnit(seconds=one, after=parent if parent < place else None)
        for place, (one, parent) in enumerate(zip(seconds, parents, strict=False))
    ]
    found = simulate(chain, devices)
    assert found == simulate(chain, devices)
    assert found.bound_s <= found.end_s <= found.work_s / devices + found.critical_s  # Graham's bound
    assert 0 <= found.idle < 1
    for unit, start in zip(chain, found.starts, strict=True):
        if unit.after is not None:
            assert start >= found.starts[unit.after] + chain[unit.after].seconds


def once(*features: str) -> list[PlannedUnit]:
    """Units of a second that need features of ten seconds."""
    return [PlannedUnit(seconds=1, once=one, once_s=10) for one in features]


def test_the_bound_holds_for_every_order_of_units_that_share_features() -> None:
    # In the first order both devices compute A, then both compute B.
    assert [simulate(once(*order), 2).end_s for order in ("AABB", "ABAB")] == [22, 12]
    assert [simulate(once(*order), 2).bound_s for order in ("AABB", "ABAB")] == [12, 12]
    alike = simulate(once(*"AAAAAAAA"), 8)
    assert (alike.end_s, alike.work_s, alike.bound_s, alike.critical_s) == (11, 88, 11, 11)


@given(
    kinds=st.lists(st.tuples(st.integers(1, 20), st.sampled_from(["", "A", "B", "C"])), min_size=1, max_size=12),
    parents=st.lists(st.integers(0, 20), min_size=12, max_size=12),
    orders=st.lists(st.permutations(range(12)), min_size=2, max_size=4),
    devices=st.integers(1, 5),
)
def test_no_order_beats_the_bound_which_is_the_same_for_all(
    kinds: list[tuple[int, str]], parents: list[int], orders: list[list[int]], devices: int
) -> None:
    once_s = {"": 0, "A": 3, "B": 10, "C": 40}
    found = []
    for order in orders:
        chain = [
            PlannedUnit(
                seconds=seconds,
                after=parent if parent < place else None,
                rank=(0, rank),
                once=needs,
                once_s=once_s[needs],
            )
            for place, ((seconds, needs), parent, rank) in enumerate(zip(kinds, parents, order, strict=False))
        ]
        found.append(simulate(chain, devices))
    assert len({(one.bound_s, one.critical_s) for one in found}) == 1
    assert all(one.critical_s <= one.bound_s <= one.end_s for one in found)
    assert all(one.least_work_s <= one.work_s for one in found)
    assert simulate(chain, 100).critical_s == found[0].critical_s


def sharing(seconds: float, slots: int, busy: float, **more: object) -> PlannedUnit:
    return PlannedUnit(seconds=seconds, slots=slots, busy=busy, **more)  # type: ignore[arg-type]


def test_units_that_leave_a_device_idle_share_it_at_no_cost() -> None:
    found = simulate([sharing(10, 4, 0.25) for _ in range(8)], 1)
    assert found.starts == (0, 0, 0, 0, 10, 10, 10, 10)
    assert (found.end_s, found.work_s, found.bound_s, found.idle) == (20, 20, 20, 0)


def test_units_that_keep_a_device_busy_are_slower_together() -> None:
    assert simulate([sharing(10, 2, 1.0) for _ in range(4)], 1).end_s == 40  # as one after the other
    # For 15 s two of them want 1.2 of the device's time; the second, which is left alone, ends at full speed.
    found = simulate([sharing(10, 2, 0.6), sharing(20, 2, 0.6)], 1)
    assert found.end_s == pytest.approx(12 + 10)


def test_a_unit_with_a_device_of_its_own_waits_for_an_empty_one() -> None:
    small = [sharing(seconds, 2, 0.5, rank=(0, -seconds)) for seconds in (9, 6, 3)]
    found = simulate([*small, PlannedUnit(seconds=5, rank=(1, 0))], 2)
    # As in Ray, a unit goes where least room is left: 9 and 6 share one device, 3 has the other until it ends.
    assert found.starts == (0, 0, 0, 3)
    assert (found.end_s, found.tail_s) == (9, 1)


def test_three_thirds_of_a_device_are_one_device() -> None:
    for slots in range(1, 17):
        assert simulate([sharing(1, slots, 0.0) for _ in range(slots)], 1).end_s == 1


@given(
    kinds=st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 5), st.sampled_from([0.1, 0.5, 1.0])), min_size=1, max_size=20
    ),
    parents=st.lists(st.integers(0, 30), min_size=20, max_size=20),
    devices=st.integers(1, 4),
)
def test_no_schedule_with_shared_devices_beats_its_bound(
    kinds: list[tuple[int, int, float]], parents: list[int], devices: int
) -> None:
    chain = [
        sharing(seconds, slots, busy, after=parent if parent < place else None)
        for place, ((seconds, slots, busy), parent) in enumerate(zip(kinds, parents, strict=False))
    ]
    found = simulate(chain, devices)
    assert found.bound_s <= found.end_s + 1e-6
    assert found.least_work_s <= found.work_s + 1e-6 or found.least_work_s <= devices * found.end_s + 1e-6
    alone = simulate([PlannedUnit(seconds=one.seconds, after=one.after) for one in chain], devices)
    assert found.end_s <= alone.work_s + 1e-6  # not even on one device without sharing
    for unit, start in zip(chain, found.starts, strict=True):
        if unit.after is not None:
            assert start >= found.starts[unit.after] + chain[unit.after].seconds - 1e-6
