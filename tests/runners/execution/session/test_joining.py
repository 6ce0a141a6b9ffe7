"""What a user hears when a Ray cluster cannot be joined: one line, soon, and what to do."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from goal_sweep.runners.execution.session.joining import MODE, TOKEN, TOKEN_PATH, reach

from goal_sweep.goal_core.basics.errors import GoalError, UnfinishedError
from goal_sweep.runners.execution.session import joining

REFUSED = "Traceback\nray.exceptions.AuthenticationError: RPC error: InvalidAuthToken: Authentication token is missing"
Head = Callable[[str], str]


@pytest.fixture(autouse=True)
def _without_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (MODE, TOKEN, TOKEN_PATH):
        monkeypatch.delenv(name, raising=False)
    reach.cache_clear()


def a_head(monkeypatch: pytest.MonkeyPatch, answer: Head) -> list[str]:
    """A head process that answers a mode with what Ray says, or with nothing. Returns the modes it was asked in."""
    asked: list[str] = []

    def ask(address: str, mode: str) -> str:
        asked.append(mode)
        return answer(mode)

    monkeypatch.setattr(joining, "_ask", ask)
    monkeypatch.setattr(joining, "_connect", lambda address: None)
    return asked


def an_open_head(mode: str) -> str:
    return ""


def a_guarded_head(mode: str) -> str:
    return "" if mode == "token" else REFUSED


def test_a_head_without_a_token_is_joined_without_one_also_by_a_user_who_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TOKEN, "a" * 32)
    a_head(monkeypatch, an_open_head)
    assert reach("head:6379") == {MODE: "disabled"}
    # To one who insists on it, the head's own calls would look like those of a stranger.
    reach.cache_clear()
    monkeypatch.setenv(MODE, "token")
    with pytest.raises(GoalError, match="asks for no token, but RAY_AUTH_MODE is token here"):
        reach("head:6379")


def test_a_head_with_a_token_is_joined_with_one_and_its_answer_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = a_head(monkeypatch, a_guarded_head)
    assert reach("head:6379") == {MODE: "token"}
    assert reach("head:6379") == {MODE: "token"}
    assert asked == ["disabled", "token"]


NO_TOKEN = "Check failed: has_token Token authentication is enabled but Ray couldn't find an authentication token."


@pytest.mark.parametrize("of_token", [REFUSED, NO_TOKEN])
def test_a_refused_token_is_one_line_with_all_places_of_a_token(monkeypatch: pytest.MonkeyPatch, of_token: str) -> None:
    asked = a_head(monkeypatch, lambda mode: of_token if mode == "token" else REFUSED)
    for wanted in ("", "disabled"):
        monkeypatch.setenv(MODE, wanted)
        with pytest.raises(GoalError, match=rf"asks for a token.*{TOKEN} .*{TOKEN_PATH} .*auth_token.*{MODE}"):
            reach("head:6379")
    assert asked == ["disabled", "token", "disabled"]


@pytest.mark.parametrize(
    ("said", "error", "line"),
    [
        (
            "RuntimeError: Ray version mismatch: cluster has Ray version 2.50.0, not 2.60.0",
            GoalError,
            "another version",
        ),
        ("ConnectionError: Could not find any running Ray instance.", UnfinishedError, "find any running Ray instance"),
        (
            "ray.exceptions.RpcError: http2 header with status: 404",
            UnfinishedError,
            "does not answer: ray.exceptions.Rpc",
        ),
    ],
)
def test_what_ray_says_becomes_one_line(
    monkeypatch: pytest.MonkeyPatch, said: str, error: type[GoalError], line: str
) -> None:
    a_head(monkeypatch, lambda mode: f"Traceback\n  some file\n{said}\n")
    with pytest.raises(GoalError) as raised:
        reach("auto")
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, UnfinishedError) is (error is UnfinishedError)


def test_a_dead_address_ends_at_once_and_the_same_command_may_succeed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "ANSWER_S", 3600.0)  # which is not waited for
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(UnfinishedError, match=rf"no Ray cluster at 127.0.0.1:{port} \(Connection refused\)"):
        reach(f"127.0.0.1:{port}")


def test_a_port_that_does_not_speak_rays_language_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        with pytest.raises(UnfinishedError, match="does not answer as a Ray head process does"):
            reach(f"127.0.0.1:{mute.getsockname()[1]}")


@pytest.mark.parametrize("address", ["ray://head:10001", "http://head:8265", "head", "head:", ":6379", "head:x"])
def test_an_address_of_something_else_is_refused_with_the_form_that_it_must_have(address: str) -> None:
    with pytest.raises(GoalError, match="host:port of the head process"):
        reach(address)
