"""Run sweeps: the command line, launches, their execution with Ray Tune, the store and the tracking."""
