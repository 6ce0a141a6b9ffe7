"""Ray itself: start its processes on this machine or join a cluster, notice their end, and leave again."""
