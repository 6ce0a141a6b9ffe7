"""Sweep files in: strict YAML, extends, overrides and the environment into one checked SweepConfig."""
