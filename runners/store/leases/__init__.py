"""Who may write to a training: the drivers that live, the attempt that holds its lease, and whether a process runs."""

from runners.store.leases.heartbeat import DriverRecords, DriverState, Heartbeat, LeaseHeldError
from runners.store.leases.lease import Lease, LeaseLostError, acquire
from runners.store.leases.processes import ProcessIdentity, user_name

__all__ = [
    "DriverRecords",
    "DriverState",
    "Heartbeat",
    "Lease",
    "LeaseHeldError",
    "LeaseLostError",
    "ProcessIdentity",
    "acquire",
    "user_name",
]
