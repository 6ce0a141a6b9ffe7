"""Read sweep files: strict YAML, `extends`, `--set` and environment variables become one checked `SweepConfig`.

Only `sweeps` itself imports this room. Other packages import `load_sweep` and its errors from `sweeps`.
"""
