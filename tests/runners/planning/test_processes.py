"""A pool's processes end with the process that made it."""

import subprocess
import sys
from pathlib import Path

from goal_sweep.goal_core.basics.machine import is_taken
from tests.helpers.until import until

POOL = """
import os, time
from goal_sweep.runners.planning.processes import process_pool

if __name__ == "__main__":
    pool = process_pool(1)
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


def test_a_process_of_a_pool_ends_when_its_maker_is_killed(tmp_path: Path) -> None:
    (script := tmp_path / "pool.py").write_text(POOL)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        pid = int(maker.stdout.readline())
        assert is_taken(pid)
        maker.kill()
    until(lambda: not is_taken(pid))
