"""A real Slurm of two nodes on this machine: munged, slurmctld and two slurmd, with every file in one folder."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.helpers.until import free_port, until

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
_CONF = """
ClusterName=goalsweeptest
SlurmctldHost=HOST(127.0.0.1)
SlurmctldPort=CTLD
SlurmUser=USER
SlurmdUser=USER
AuthType=auth/munge
AuthInfo=socket=DIR/munge.socket
CredType=cred/munge
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool%n
SlurmctldPidFile=DIR/ctld.pid
SlurmdPidFile=DIR/slurmd%n.pid
SlurmctldLogFile=DIR/ctld.log
SlurmdLogFile=DIR/slurmd%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
KillWait=30
MpiDefault=none
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2,requeue_delay=1
NodeName=n1 NodeHostname=HOST NodeAddr=127.0.0.1 Port=PORT1 CPUs=4 RealMemory=4000 State=UNKNOWN
NodeName=n2 NodeHostname=HOST NodeAddr=127.0.0.1 Port=PORT2 CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
"""The nodes claim more cores than the machine may have, so that two jobs fit on one of them."""


def missing() -> list[str]:
    """The programs of Slurm that this machine lacks."""
    return [name for name in NEEDED if _find(name) is None]


@contextlib.contextmanager
def two_nodes(folder: Path) -> Iterator[Mapping[str, str]]:
    """Run the daemons. Yields the environment in which Slurm's commands find them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("state", "spooln1", "spooln2"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    text = _CONF.replace("DIR", str(folder)).replace("HOST", socket.gethostname().split(".")[0])
    text = text.replace("USER", "root" if os.getuid() == 0 else os.environ["USER"])
    for name in ("CTLD", "PORT1", "PORT2"):
        text = text.replace(name, str(free_port()))
    (folder / "slurm.conf").write_text(text)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    places = [f"--{kind}-file={folder / f'munge.{kind}'}" for kind in ("key", "pid", "log", "seed")]
    daemons = [_start(["munged", "--foreground", "--force", f"--socket={folder / 'munge.socket'}", *places], folder)]
    try:
        until(lambda: (folder / "munge.socket").exists(), "munged")
        daemons.append(_start(["slurmctld", "-D", "-c"], folder, environment))
        daemons += [_start(["slurmd", "-D", "-N", node], folder, environment) for node in ("n1", "n2")]
        until(lambda: _idle(environment) == 2, "both nodes idle")
        yield environment
    finally:
        with contextlib.suppress(subprocess.SubprocessError, AssertionError):
            subprocess.run(["scancel", "--user=root"], env=environment, timeout=20, check=False)
            until(lambda: not _queue(environment), "an empty queue", 45)
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in daemons:
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()


def _find(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _start(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    program = _find(command[0])
    assert program is not None
    with (folder / f"{command[0]}{command[-1] if '-N' in command else ''}.out").open("wb") as out:
        return subprocess.Popen(
            [program, *command[1:]], env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )


def _idle(environment: Mapping[str, str]) -> int:
    done = subprocess.run(["sinfo", "-h", "-N", "-o", "%t"], env=environment, capture_output=True, text=True)
    return done.stdout.split().count("idle")


def _queue(environment: Mapping[str, str]) -> str:
    return subprocess.run(["squeue", "-h"], env=environment, capture_output=True, text=True).stdout
