"""Ray's processes of one node, with programs in place of Ray's."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from goal_sweep.runners.execution.session.node import NodeFailedError, RayNode, is_alive, private_folder

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.execution.session import node as module
from tests.helpers.paths import ROOT
from tests.helpers.ray_nodes import A_RAYLET
from tests.helpers.until import until

FAKE = """
import os, signal, socket, subprocess, sys, time
options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
if "port" in options:
    server = socket.create_server(("127.0.0.1", int(options["port"])))
{before}
print("Ray runtime started.", flush=True)
time.sleep(300)
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayNode]:
    """A node whose `ray start` comes up at once."""
    monkeypatch.setattr(module, "_START", FAKE.format(before=A_RAYLET))
    made = RayNode(tmp_path / "log", tmp_path, {"TOLD": "a variable"})
    yield made
    made.end()


def children() -> list[psutil.Process]:
    return [process for process in psutil.Process().children(recursive=True) if is_alive(process)]


def test_a_head_listens_on_a_free_port_and_ends_with_all_that_it_started(
    node: RayNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])"
    monkeypatch.setattr(module, "_START", FAKE.format(before=A_RAYLET + before))
    others = children()
    host, _, port = node.start_head("127.0.0.1").rpartition(":")
    assert host == "127.0.0.1"
    socket.create_connection((host, int(port)), timeout=5).close()
    assert node.is_running()
    assert len(children()) == len(others) + 3
    node.end()
    assert not set(children()) - set(others)
    assert not node.is_running()


def test_what_its_processes_leave_behind_when_they_are_killed_ends_too(
    node: RayNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agents of a node process that was killed live on for minutes."""
    orphan = f"import os; os.fork() or (open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())), time.sleep(300))"
    before = f"subprocess.run([sys.executable, '-c', {f'import time; {orphan}'!r}])"
    monkeypatch.setattr(module, "_START", FAKE.format(before=A_RAYLET + before))
    node.start_head("127.0.0.1")
    said = tmp_path / "pid"
    until(lambda: said.exists() and said.read_text(), "orphan")
    left = psutil.Process(int(said.read_text()))
    assert left.parent() != psutil.Process(node._process.pid)  # type: ignore[union-attr]
    node.end()
    assert not is_alive(left)


def test_a_port_that_another_process_takes_first_is_left_to_it(node: RayNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        node._ports = itertools.chain([taken.getsockname()[1]], node._ports)
        address = node.start_head("127.0.0.1")
        assert not address.endswith(f":{taken.getsockname()[1]}")


def test_a_port_is_free_when_it_is_given() -> None:
    for port in itertools.islice(module._free_ports(), 3):
        socket.create_server(("", port)).close()


def test_no_port_is_given_that_something_listens_on() -> None:
    with socket.create_server(("", next(module._free_ports()))) as server:
        given = set(itertools.islice(module._free_ports(), 50))
        assert server.getsockname()[1] not in given
    assert len(given) == 50
    assert all(20000 <= port < 32000 for port in given)


def test_a_head_that_does_not_start_says_why_and_leaves_nothing(node: RayNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_START", "raise SystemExit('no space left on device')")
    others = children()
    with pytest.raises(NodeFailedError, match="no space left on device"):
        node.start_head("127.0.0.1")
    assert not set(children()) - set(others)


def test_a_process_of_ray_that_dies_while_the_others_start_is_not_waited_for(
    node: RayNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raylet = tmp_path / "raylet"
    raylet.symlink_to(Path(sys.executable).resolve())
    start = f"import subprocess, time; subprocess.Popen([{str(raylet)!r}, '-c', 'import time; time.sleep(1)'])"
    monkeypatch.setattr(module, "_START", f"{start}; time.sleep(300)")
    others = children()
    node.start()
    with pytest.raises(NodeFailedError):
        node.wait_until_up()
    assert not set(children()) - set(others)


RAYLET = """
import sys, time
from pathlib import Path
options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
told = Path(options["session_dir"], "dashboard_agent_listen_port_" + options["node_id"])
until = time.monotonic() + 60
while not told.exists():
    if time.monotonic() > until:
        sys.exit(1)
    time.sleep(0.05)
Path(options["session_dir"], "up").touch()
time.sleep(300)
"""


def test_a_node_process_that_has_ended_before_it_was_seen_is_not_waited_for(
    node: RayNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its agent is killed at once: whoever joins that Ray would wait for an hour."""
    monkeypatch.setattr(module, "_START", FAKE.format(before=""))
    node.start()
    with pytest.raises(NodeFailedError):
        node.wait_until_up()


@pytest.mark.parametrize(("listens", "told"), [((), "-1"), (("--dashboard-agent-listen-port=5",), "5")])
def test_a_node_whose_agents_are_slow_is_told_their_port_and_lives(
    listens: tuple[str, ...], told: str, node: RayNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's node process ends itself when an agent has not said within 20 s on which port it listens."""
    raylet = tmp_path / "raylet"
    raylet.symlink_to(Path(sys.executable).resolve())
    start = f"""
    from pathlib import Path
    words = [{str(raylet)!r}, "-c", {RAYLET!r}, "--node_id=abc", "--session_dir={tmp_path}"]
    node = subprocess.Popen(words, env={{**os.environ, "PYTHONHOME": {sys.base_prefix!r}}})
    while not Path({str(tmp_path)!r}, "up").exists():
        if node.poll() is not None:
            sys.exit("the raylet has ended")
        time.sleep(0.05)
    """
    lines = "\n".join(line.removeprefix("    ") for line in start.splitlines())
    monkeypatch.setattr(module, "_START", FAKE.format(before=lines))
    node.start(*listens)
    node.wait_until_up()
    assert node.is_running()
    assert (tmp_path / "dashboard_agent_listen_port_abc").read_text() == told
    (process,) = (child for child in children() if child.name() == "raylet")
    process.suspend()
    assert node.is_running()  # it is silent, and lives
    process.kill()
    until(lambda: not is_alive(process), "end of the node process")
    assert not node.is_running()


def test_ray_ignores_the_signals_with_which_a_job_is_asked_to_save(node: RayNode) -> None:
    node.start_head("127.0.0.1")
    process = node._process
    assert process is not None
    for number in module.SAVING:
        process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    assert node.is_running()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(module.SAVING) == set()


WAITS_S = (
    *("RAY_raylet_start_wait_time_s", "RAY_gcs_server_port_wait_time_s", "RAY_gcs_server_request_timeout_seconds"),
    *("RAY_gcs_rpc_server_connect_timeout_s", "RAY_py_gcs_connect_timeout_s"),
)
"""Ray's variables for the seconds that its processes wait for each other while they start."""


def test_ray_is_given_variables_with_which_slowness_is_not_death(
    node: RayNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = ("RAY_worker_niceness", "RAY_agent_register_timeout_ms", "TOLD", *WAITS_S)
    show = f"print(*(os.environ.get(name) for name in {named}), sep='|')"
    monkeypatch.setattr(module, "_START", FAKE.format(before=A_RAYLET + show))
    node.start()
    node.wait_until_up()
    niceness, agents_ms, told, *waits_s = node._log.read_text().splitlines()[0].split("|")
    assert (niceness, told) == ("0", "a variable")
    assert min(int(agents_ms) / 1000, *map(int, waits_s)) >= 3600


DRIVER = """
import sys, time
from pathlib import Path
from goal_sweep.runners.execution.session import node
ray_start = "from ray.scripts.scripts import main\\nmain()"
start = node._START.replace(ray_start, {raylet!r} + "print({up!r}, flush=True); time.sleep(300)")
assert start != node._START
node._START = start
ray = node.RayNode(Path({log!r}), Path("/tmp"), {{}})
ray.start()
ray.wait_until_up()
print(ray._process.pid, flush=True)
time.sleep(300)
"""


def test_ray_ends_with_the_process_that_started_it_also_when_that_is_killed(tmp_path: Path) -> None:
    text = DRIVER.format(up=module._UP, raylet=A_RAYLET, log=str(tmp_path / "log"))
    driver = subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    process = psutil.Process(int(driver.stdout.readline()))
    (agent,) = process.children()
    driver.kill()
    driver.wait()
    until(lambda: not is_alive(process) and not is_alive(agent), "end of Ray and its agent")


def test_the_logs_of_rays_that_have_ended_are_removed_an_hour_later(node: RayNode, tmp_path: Path) -> None:
    ended = [subprocess.Popen([sys.executable, "-c", ""]) for _ in range(2)]
    assert [process.wait() for process in ended] == [0, 0]
    old = time.time() - 2 * module._KEPT_S
    cases = {"ended": (ended[0].pid, old), "alive": (os.getpid(), old), "lately": (ended[1].pid, time.time())}
    paths = dict[str, list[Path]]()
    for name, (pid, written) in cases.items():
        paths[name] = [tmp_path / f"session_2026-11-24_18-20-53_208339_{pid}", tmp_path / f"start-{pid}.log"]
        log = paths[name][0] / "logs" / "raylet.out"
        log.parent.mkdir(parents=True)
        for path in (log, paths[name][1]):
            path.touch()
        for path in [log, *paths[name]]:
            os.utime(path, (written, written))
    node.start_head("127.0.0.1")
    left = {name: [path.exists() for path in paths] for name, paths in paths.items()}
    assert left == {"ended": [False, False], "alive": [True, True], "lately": [True, True]}


def test_a_start_that_is_interrupted_ends_what_it_has_started(node: RayNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_START", "import time; time.sleep(300)")
    others = children()
    node.start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        node.wait_until_up()
    node.end()
    assert not set(children()) - set(others)  # those of earlier tests may end meanwhile


def test_nobody_else_may_enter(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    path.parent.mkdir()
    path.mkdir(mode=0o777)
    path.chmod(0o777)
    for _ in range(2):
        assert private_folder(path).stat().st_mode & 0o777 == 0o700
    assert private_folder(tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_link_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(GoalError, match="belongs to another user"):
            private_folder(tmp_path / name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.mkdir()
    os.chown(path, 65534, 65534)
    with pytest.raises(GoalError, match="belongs to another user"):
        private_folder(path)


FATAL = """[2026-11-24 10:41:37,996 I 9 9] (gcs_server) gcs_server.cc:381: Generated new cluster ID.
[2026-11-24 10:41:38,294 C 9 9] (gcs_server) grpc_server.cc:134:  An unexpected state. Check failed: no port 40313.
*** StackTrace Information ***
/ray/gcs_server(+0x14c3daa) [0x5633014d6daa] ray::operator<<()
/lib/libc.so.6(__libc_start_main+0x85) [0x7f5baa445305] __libc_start_main
"""


def test_the_fatal_error_of_ray_is_found_before_its_native_trace(tmp_path: Path) -> None:
    logs = tmp_path / "session_latest" / "logs"
    logs.mkdir(parents=True)
    for name in ("gcs_server.err", "gcs_server.out"):
        (logs / name).write_text(FATAL)
    node = RayNode(tmp_path / "log", tmp_path, {})
    assert node.last_lines == "no port 40313."
    first, second = FATAL.splitlines()[:2]
    assert node.log_ends(2).splitlines() == [f"gcs_server.err | {first}", f"gcs_server.err | {second}"]
