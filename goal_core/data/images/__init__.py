"""Image files to the pixels that a backbone sees: decoding, transforms and augmentation.

Batches, evaluation and the extraction of features read images through :class:`DecodedImages`; nothing outside this room
opens an image file.
"""

from typing import TYPE_CHECKING

from goal_sweep.goal_core.basics.exports import on_first_use

if TYPE_CHECKING:
    from goal_sweep.goal_core.data.images.decoding import RAM_LIMIT, DecodedImages
    from goal_sweep.goal_core.data.images.transforms import ImageTransform, decode_image, transform_of
else:
    __getattr__ = on_first_use(__name__, __file__)
