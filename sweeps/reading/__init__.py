"""Read sweep files: strict YAML, `extends`, `--set` and environment variables become one checked `SweepConfig`."""
