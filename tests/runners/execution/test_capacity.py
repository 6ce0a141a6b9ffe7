"""What a unit asks for, and whether a machine can ever have it."""

import pytest

from goal_sweep.goal_core.basics.errors import DeviceError, GoalError, UnfinishedError
from goal_sweep.runners.execution.job import Death
from goal_sweep.runners.execution.session import RaySession, Resources, check_address, check_here
from tests.helpers.planning_cases import machine

NEED = Resources(cpus=2, gpus=0.5, accelerator="A100")


def test_a_unit_asks_for_its_part_of_a_gpu_of_its_kind() -> None:
    assert NEED.bundle == {"CPU": 2.0, "GPU": 0.5, "accelerator_type:A100": 0.001}
    assert Resources(cpus=1, gpus=0).bundle == {"CPU": 1.0}
    others = machine(), machine(CPU=8), machine(CPU=8, GPU=1, accelerator_type__T4=1)
    assert not any(one.fits(NEED) for one in others)
    assert machine(CPU=8, GPU=1, accelerator_type__A100=1).fits(NEED)


def test_what_does_not_fit_this_machine_is_said_with_what_would_before_ray_starts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2, "GPU": 0}')
    check_here(Resources(cpus=2, gpus=0))
    monkeypatch.setattr(RaySession, "_init", lambda self: pytest.fail("Ray was started"))
    with pytest.raises(DeviceError) as refused, RaySession(None, Resources(cpus=8, gpus=1), 60):
        pass
    assert "a unit needs 8 CPU and 1 GPU (resources.*), but this machine has 2 CPU and 0 GPU" in str(refused.value)
    assert "--set resources.gpus=0 --set resources.cpus=2 fits it" in str(refused.value)
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 8, "GPU": 1}')
    check_here(Resources(cpus=8, gpus=1, accelerator="A100"))  # only Ray finds out the kind of a GPU


@pytest.mark.parametrize("address", ["ray://head:10001", "http://head:8265", "head", "head:", ":6379", "head:x"])
def test_an_address_of_something_else_is_refused_with_the_form_that_it_must_have(address: str) -> None:
    with pytest.raises(GoalError, match="host:port of the head process"):
        check_address(address)


def test_a_dead_address_ends_at_once_and_the_same_command_may_succeed_later() -> None:
    with pytest.raises(UnfinishedError, match=r"no Ray cluster at 127.0.0.1:9 \(Connection refused\)"):
        RaySession("127.0.0.1:9", Resources(cpus=1, gpus=0), 60).__enter__()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ray.exceptions.RayActorError: OutOfMemoryError: killed due to the node running low on memory", "memory"),
        ("ray.exceptions.ActorDiedError: The actor died because its node has died. Node Id: x", "machine"),
        ("ray.exceptions.ActorDiedError: The actor died unexpectedly. Worker exit type: SYSTEM_ERROR", "died"),
        ("", "died"),
    ],
)
def test_what_ray_says_of_a_death_is_told_apart(text: str, kind: str) -> None:
    assert Death.read(f"Traceback\n  line\n{text}\n").kind == kind
