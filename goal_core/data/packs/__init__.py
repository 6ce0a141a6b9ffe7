"""Packs: a dataset's images decoded and resized once, in a few large files that every process reads.

`writing` makes a pack; `pack` says what is where in its files, and puts one under a dataset's splits. A pack is named
by a hash of all that its pixels depend on, so one of other data, settings or libraries is never found.
"""

from typing import TYPE_CHECKING

from goal_core.basics.exports import on_first_use

if TYPE_CHECKING:
    from goal_core.data.packs.pack import PackedImages, PackPlan, libraries, open_packed, plan_pack
    from goal_core.data.packs.writing import BrokenImagesError, estimate_bytes, write_pack
else:
    __getattr__ = on_first_use(__name__, __file__)
