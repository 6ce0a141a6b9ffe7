"""Where the files of a store are kept: in a folder of this machine or its network, or in a bucket of an object store.

The rest of `runners.store` reads and writes through a `Storage`, so nothing else asks which of the two it is.
"""

from runners.store.storage.folders import (
    LOCAL,
    PATIENCE_S,
    ExpiredCredentialsError,
    Storage,
    Task,
    Written,
    read_json,
)
from runners.store.storage.place import Place, cache_folder, local_root

__all__ = [
    "LOCAL",
    "PATIENCE_S",
    "ExpiredCredentialsError",
    "Place",
    "Storage",
    "Task",
    "Written",
    "cache_folder",
    "local_root",
    "read_json",
]
