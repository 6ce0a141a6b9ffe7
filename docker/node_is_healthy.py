"""Exit with 0 if Ray's head counts this container among its living nodes.

python node_is_healthy.py HOST:PORT
"""

import socket
import sys

from ray._raylet import GcsClient  # the public `ray health-check` says only whether the head answers
from ray.core.generated.gcs_pb2 import GcsNodeInfo

nodes = GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10).values()
alive = [node.node_manager_hostname for node in nodes if node.state == GcsNodeInfo.ALIVE]
if socket.gethostname() not in alive:
    sys.exit(f"{socket.gethostname()} is not among the living nodes: {', '.join(alive) or 'none'}")
