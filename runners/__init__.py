"""The operations: command line, Ray Tune runner, store, tracking and the live view."""
