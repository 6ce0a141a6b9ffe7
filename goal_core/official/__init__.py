"""The published checkpoints of VSE++, VSE-infinity and X-VLM, converted without running code from their files.

`goal-sweep convert` uses it; nothing else in goal_core does.
"""

from goal_sweep.goal_core.official.convert import read_published
