"""Who may write to a training: the drivers that live, the attempt that holds its lease, and whether a process runs."""
