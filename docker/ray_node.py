"""Run a container's Ray node until one of its processes ends: ray_node.py OPTIONS, which are those of `ray start`.

`ray start` gives up a node whose agents are slow to load on busy cores, and does not notice that the node has ended.
"""

import sys
import time
from pathlib import Path

from goal_sweep.runners.execution.session.node import NodeFailedError, RayNode

node = RayNode(Path("/tmp/ray-start.log"), Path("/tmp/ray"), {})
try:
    node.start(*sys.argv[1:])
    node.wait_until_up()
    print("Ray runs", flush=True)
    while node.is_running():
        time.sleep(1)
    raise NodeFailedError(f"Ray's processes have ended: {node.last_lines}")
except NodeFailedError as error:
    sys.exit(f"{error}\n{node.log_ends()}")
finally:
    node.end()
