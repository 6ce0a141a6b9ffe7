"""The checkpoints that the published systems' authors released, converted without running what is in them."""

from goal_core.official.convert import Official, read_vse_infty, read_vsepp, read_xvlm, write_official
from goal_core.official.pickles import read_vocabulary

__all__ = ["Official", "read_vocabulary", "read_vse_infty", "read_vsepp", "read_xvlm", "write_official"]
