"""Recall of image-text retrieval: every query ranked exactly, every tie counted against the model.

Rows are images, columns are captions, and higher is more similar. Shape suffixes: ``N`` images, ``M`` captions,
``D`` embedding, ``R`` and ``C`` the images and captions of one block.

The similarity matrix is never held whole. Captions are ordered by their image and cut at the same images as the rows,
so the positive pairs of a block of rows lie in one block. The blocks of the diagonal come first and give each query the
similarity to beat; every block is computed once for both directions.

Source: recall@K and its 1K protocol as in Karpathy & Fei-Fei 2015 (arXiv:1412.2306) and VSE++ (arXiv:1707.05612).
Deviates: there a sort breaks ties, which lets a collapsed model score anything up to 100 %.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_sweep.goal_core.basics.devices import full_precision
from goal_sweep.goal_core.basics.errors import GoalError, first_line
from goal_sweep.goal_core.evaluation.metrics import RECALLS_AT, SUMMED
from goal_sweep.goal_core.objectives.stats import warn_of_lengths

# Equal vectors must give equal similarities wherever they stand, or ties go undetected. Matrix products round equally
# only away from ragged edges, so every block is padded to one shape, a multiple of this many rows and columns.
_TILE = 64
_CAPTIONS_PER_IMAGE = 5
_SAME = 1e-5
"""Rows that differ by less, as a share of their largest number, may be one image that was embedded in two batches."""
_NEAR = 0.999
"""The cosine above which groups of neighbours, all of one size, are one image each in lower precision."""
_MEND = "give each image once, and the owners of the texts (--owners)"


class EmbeddingError(GoalError):
    """Embeddings, or the index that pairs them, from which no recall can be computed."""


class NonFiniteEmbeddingError(EmbeddingError):
    """Embeddings or scores contain a NaN or an infinity, or embeddings are not of unit length."""


@dataclass(frozen=True, slots=True)
class RetrievalRanks:
    """How many wrong items rank before the right one or tie with it; 0 is a hit at 1."""

    i2t: Tensor
    """Shape (N,), int64: wrong captions at least as similar as the image's best own caption."""
    t2i: Tensor
    """Shape (M,), int64: wrong images at least as similar as the caption's own image."""

    def metrics(self) -> dict[str, float]:
        """Recalls, 0 to 100, such as `i2t_r1` (images with a right caption first), and `rsum`: all of `METRICS`."""
        recalls = {
            f"{direction}_r{k}": 100.0 * int((ranks < k).sum()) / ranks.numel()
            for direction, ranks in (("i2t", self.i2t), ("t2i", self.t2i))
            for k in RECALLS_AT
        }
        return {**recalls, "rsum": sum(recalls[name] for name in SUMMED)}

    def save(self, path: Path, text_to_image: Tensor) -> None:
        """Write them as a compressed ``.npz`` of unsigned integers, nothing pickled.

        ``i2t`` (N,); ``t2i`` (M,), in the order of the captions' images; ``captions`` (N,): the captions of each image.
        """
        i2t, t2i, owners = (array.cpu().numpy() for array in (self.i2t, self.t2i, text_to_image))
        arrays = (i2t, t2i[np.argsort(owners, kind="stable")], np.bincount(owners))
        i2t, t2i, captions = (array.astype(np.min_scalar_type(array.max())) for array in arrays)
        with path.open("wb") as file:
            np.savez_compressed(file, i2t=i2t, t2i=t2i, captions=captions)


def recall(
    images: Tensor | NDArray[np.floating],
    texts: Tensor | NDArray[np.floating],
    owners: Tensor | NDArray[np.integer] | Sequence[int] | None = None,
    *,
    folds: int = 1,
) -> dict[str, float]:
    """Recall by dot product of embeddings from anywhere, percent. Warns of rows that are not of unit length.

    Where images and texts are equally many, and every image stands k times in a row, as in the files of VSE++, it is
    taken once, with a warning, and has k texts. A warning tells of all other images that are equal to another one.

    Args:
        images: shape (N, D), floating point.
        texts: shape (M, D), floating point, on the same device.
        owners: the row of ``images`` that each text describes, shape (M,). None: each image has M / N texts, which
            follow one another in the order of the images.
        folds: equal, contiguous parts of the images, each ranked on its own, whose mean is returned; a divisor of N.

    Raises:
        EmbeddingError: shapes, types, devices or owners do not fit; an image has no text; an embedding is not finite;
            owners are missing, and M is not a multiple of N, or most images stand there several times, all but equal.
    """
    image_ND, text_MD = _tensor(images), _tensor(texts)
    for name, emb in (("images", image_ND), ("texts", text_MD)):
        _check_numbers(name, emb)
        tiny = emb.float().square().sum(1) < torch.finfo(torch.float32).tiny
        if bool(tiny.any()):
            raise EmbeddingError(f"{int(tiny.sum())} of {len(emb)} {name} are of length 0 in single precision")
    if owners is None:
        image_ND = _each_once(image_ND, len(text_MD))
    _check_repeats(image_ND, refuses=owners is None)
    if owners is None:
        each, rest = divmod(len(text_MD), len(image_ND))
        if rest:
            raise EmbeddingError(f"{len(text_MD)} texts do not divide over {len(image_ND)} images; give their owners")
        owners = torch.arange(len(image_ND)).repeat_interleave(each)
    found = retrieval_metrics(image_ND, text_MD, _tensor(owners), folds)
    warn_of_lengths(image_ND, text_MD, "they are ranked by dot product, not by cosine")
    return found


def _each_once(image_ND: Tensor, num_texts: int) -> Tensor:
    """Images without the rows that repeat the one before, where every image stands equally often for its texts."""
    if num_texts != len(image_ND):
        return image_ND
    if each := _in_a_row(_equal_to_next(image_ND)):
        warnings.warn(f"each image stands {each} times in a row; it is taken once, with {each} texts", stacklevel=3)
        return image_ND[::each]
    if each := _in_a_row(torch.cosine_similarity(image_ND[:-1].float(), image_ND[1:].float()) > _NEAR):
        raise EmbeddingError(f"every {each} images in a row are all but equal (cosine above {_NEAR}); {_MEND}")
    return image_ND


def _in_a_row(is_same: Tensor) -> int:
    """How many rows are the same as the one before, and this one, if there are such groups, all of one size; else 0."""
    first = torch.cat((is_same.new_ones(1), ~is_same)).nonzero().flatten()
    each, rest = divmod(len(is_same) + 1, len(first))
    is_regular = not rest and torch.equal(first, each * torch.arange(len(first), device=first.device))
    return each if is_regular and each > 1 and len(first) > 1 else 0


def _equal_to_next(image_ND: Tensor) -> Tensor:
    before, after = image_ND[:-1].float(), image_ND[1:].float()
    return (after - before).abs().amax(1) <= _SAME * torch.minimum(before.abs().amax(1), after.abs().amax(1))


def _check_repeats(image_ND: Tensor, *, refuses: bool) -> None:
    """Warn of images that are equal to another one, wherever they stand; refuse them if asked and most are."""
    # Of one number per image, equal images have equal ones, and hardly any others do: sorting makes them neighbours.
    numbers_N = image_ND.double() @ torch.arange(image_ND.shape[1], device=image_ND.device).double().cos()
    ordered_ND = image_ND[numbers_N.argsort()]
    again, equal = int(_equal_to_next(ordered_ND).sum()), int((ordered_ND[1:] == ordered_ND[:-1]).all(1).sum())
    says = f"{again} of {len(image_ND)} images are {'all but ' * (again > equal)}equal to another one"
    if refuses and 2 * equal >= len(image_ND):
        raise EmbeddingError(f"{says}; {_MEND}")
    if again:
        warnings.warn(f"{says}, and a text of one cannot find it before the other; {_MEND}", stacklevel=3)


def _tensor(given: Tensor | NDArray[np.number] | Sequence[int]) -> Tensor:
    """A tensor of the same values; a copy of an array that torch would not share: read-only, reversed, byte-swapped."""
    try:
        given = given.to_numpy() if hasattr(given, "to_numpy") else given  # of pandas
        if isinstance(given, np.ma.MaskedArray):
            raise TypeError("a mask would be lost; fill or leave out what it covers")
        if isinstance(given, np.ndarray) and not (
            given.flags.writeable and given.dtype.isnative and min(given.strides, default=0) >= 0
        ):
            given = np.array(given, dtype=given.dtype.newbyteorder("="))
        return torch.as_tensor(given)
    except (TypeError, ValueError) as error:
        raise EmbeddingError(f"neither a tensor nor an array of numbers: {first_line(error)}") from error


def retrieval_metrics(
    image_emb: Tensor,
    text_emb: Tensor,
    text_to_image: Tensor | NDArray[np.integer],
    folds: int = 1,
    *,
    block_images: int = 1024,
) -> dict[str, float]:
    """Recall of ranking all captions for each image, and all images for each caption, by dot product in fp32, percent.

    With ``folds`` above 1 the images are cut into that many equal, contiguous parts, each is ranked on its own with its
    captions, and the metrics are averaged: 5,000 COCO images in 5 folds are the "1K test".

    Args:
        image_emb: shape (N, D), floating point; L2-normalised when cosine similarity is meant.
        text_to_image: shape (M,), integer; the row of ``image_emb`` that each caption describes, in any order.
            Each image needs at least one caption; images may have different numbers of them.
        block_images: rows of one block. With five captions per image, memory is about ``44 * D + 220 * block_images``
            bytes for each row; the result does not depend on it.
    """
    with torch.no_grad(), full_precision(image_emb.device):
        images_ND, texts_MD, owners_M, _ = _check_and_sort(image_emb, text_emb, text_to_image)
        if folds < 1 or images_ND.shape[0] % folds:
            raise EmbeddingError(f"{images_ND.shape[0]} images do not divide into {folds=} equal folds")
        size = images_ND.shape[0] // folds
        cuts = torch.searchsorted(owners_M, torch.arange(folds + 1, device=owners_M.device) * size).tolist()
        parts = []
        for first, (start, stop) in zip(range(0, len(images_ND), size), pairwise(cuts), strict=True):
            images = images_ND[first : first + size]
            parts.append(_ranks(images, texts_MD[start:stop], owners_M[start:stop] - first, block_images).metrics())
    return {name: sum(part[name] for part in parts) / folds for name in parts[0]}


def retrieval_ranks(
    image_emb: Tensor, text_emb: Tensor, text_to_image: Tensor | NDArray[np.integer], *, block_images: int = 1024
) -> RetrievalRanks:
    """The rank of the right answer of every query; see :func:`retrieval_metrics` for arguments and errors."""
    with torch.no_grad(), full_precision(image_emb.device):
        images_ND, texts_MD, owners_M, order_M = _check_and_sort(image_emb, text_emb, text_to_image)
        ranks = _ranks(images_ND, texts_MD, owners_M, block_images)
        t2i = torch.empty_like(ranks.t2i)
        t2i[order_M] = ranks.t2i
    return RetrievalRanks(ranks.i2t, t2i)


def nearest_items(
    query_emb: Tensor, item_emb: Tensor, image_of_query: Tensor, image_of_item: Tensor, *, block: int = 1024
) -> tuple[Tensor, Tensor]:
    """The right item and the wrong item that are the most similar to each query, by dot product in fp32.

    Args:
        query_emb: shape (N, D) or (M, D).
        image_of_query: index of each query's image, int64. Items of the same image are right; each query has one.

    Returns:
        Indices of items, (queries,) int64 each.
    """
    right, wrong = [], []
    with torch.no_grad(), full_precision(query_emb.device):
        for rows, owners in zip(*(torch.split(one, block) for one in (query_emb.float(), image_of_query)), strict=True):
            sims, is_right = rows @ item_emb.float().T, owners[:, None] == image_of_item
            right.append(sims.masked_fill(~is_right, -torch.inf).argmax(1))
            wrong.append(sims.masked_fill(is_right, -torch.inf).argmax(1))
    return torch.cat(right), torch.cat(wrong)


def _check_and_sort(
    image_emb: Tensor, text_emb: Tensor, text_to_image: Tensor | NDArray[np.integer]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and texts in fp32, the texts ordered by image; each text's image; and the order that was applied."""
    largest = [_check_numbers(name, emb) for name, emb in (("images", image_emb), ("texts", text_emb))]
    if image_emb.shape[1] != text_emb.shape[1]:
        raise EmbeddingError(f"images have {image_emb.shape[1]} dimensions but texts have {text_emb.shape[1]}")
    if image_emb.device != text_emb.device:
        raise EmbeddingError(f"images are on {image_emb.device} but texts are on {text_emb.device}")
    owners_M = _check_owners(torch.as_tensor(text_to_image), image_emb.shape[0], text_emb.shape[0])
    owners_M = owners_M.to(image_emb.device)
    images_ND, texts_MD = image_emb.float(), text_emb.float()
    if largest[0] * largest[1] * images_ND.shape[1] > torch.finfo(torch.float32).max:
        raise EmbeddingError(f"similarities overflow fp32: values reach {largest[0]:.3g} and {largest[1]:.3g}")
    order_M = torch.argsort(owners_M, stable=True)
    return images_ND, texts_MD[order_M], owners_M[order_M], order_M


def _check_owners(owners_M: Tensor, num_images: int, num_texts: int) -> Tensor:
    """``owners_M`` in int64, after a check that it gives each text an image and each image a text."""
    if owners_M.dtype.is_floating_point or owners_M.dtype.is_complex or owners_M.dtype == torch.bool:
        raise EmbeddingError(f"owners must be integers, got {owners_M.dtype}")
    if tuple(owners_M.shape) != (num_texts,):
        raise EmbeddingError(f"owners must have shape ({num_texts},), one per text, got {tuple(owners_M.shape)}")
    owners_M = owners_M.long()  # of torch's wider unsigned numbers no minimum is to be had
    low, high = int(owners_M.min()), int(owners_M.max())
    if low < 0 or high >= num_images:
        raise EmbeddingError(f"owners must lie in 0..{num_images - 1}, got values from {low} to {high}")
    without = (torch.bincount(owners_M, minlength=num_images) == 0).nonzero().flatten()
    if without.numel():
        raise EmbeddingError(f"{len(without)} of {num_images} images have no caption, the first is {int(without[0])}")
    return owners_M


def _check_numbers(name: str, emb: Tensor) -> float:
    """The largest absolute value in single precision, after a check that all rows are finite there."""
    if emb.ndim != 2 or 0 in emb.shape:
        raise EmbeddingError(f"{name} must be a non-empty matrix (items, dimensions), got shape {tuple(emb.shape)}")
    if not emb.dtype.is_floating_point:
        raise EmbeddingError(f"{name} must be floating point, got {emb.dtype}")
    emb = emb.float()
    bad = (~torch.isfinite(emb)).any(dim=1).nonzero().flatten()
    if bad.numel():
        where = f"in {len(bad)} of {len(emb)} rows, the first is {int(bad[0])}"
        raise NonFiniteEmbeddingError(f"{name} are not finite {where}")
    return float(emb.abs().max())


def _cuts(owners_M: Tensor, num_images: int, block_images: int) -> list[tuple[int, int, int, int]]:
    """Blocks ``(first image, last + 1, first text, last + 1)`` of bounded rows and, where they can be, columns."""
    ends = torch.bincount(owners_M, minlength=num_images).cumsum(0).cpu().numpy()
    blocks, image, text = [], 0, 0
    while image < num_images:
        fits = int(np.searchsorted(ends, text + block_images * _CAPTIONS_PER_IMAGE, side="right"))
        stop = min(image + block_images, max(fits, image + 1), num_images)
        blocks.append((image, stop, text, int(ends[stop - 1])))
        image, text = stop, int(ends[stop - 1])
    return blocks


def _ranks(images_ND: Tensor, texts_MD: Tensor, owners_M: Tensor, block_images: int) -> RetrievalRanks:
    """Ranks of checked fp32 embeddings whose texts are ordered by image."""
    device, (num_images, dims), num_texts = images_ND.device, images_ND.shape, texts_MD.shape[0]
    blocks = _cuts(owners_M, num_images, max(1, block_images))
    R, C = (-(-max(b[k + 1] - b[k] for b in blocks) // _TILE) * _TILE for k in (0, 2))
    images_RD, texts_CD = torch.zeros(R, dims, device=device), torch.zeros(C, dims, device=device)
    sims_RC, beaten_RC = torch.empty(R, C, device=device), torch.empty(R, C, device=device)
    best_N, own_M = torch.empty(num_images, device=device), torch.empty(num_texts, device=device)
    i2t, t2i = (torch.zeros(n, dtype=torch.int64, device=device) for n in (num_images, num_texts))

    def block(rows: tuple[int, int, int, int], columns: tuple[int, int, int, int]) -> tuple[slice, slice, Tensor]:
        (a, b, _, _), (_, _, c, d) = rows, columns
        images_RD[: b - a].copy_(images_ND[a:b])
        torch.mm(images_RD, texts_CD.T, out=sims_RC)
        return slice(a, b), slice(c, d), sims_RC[: b - a, : d - c]

    def count(n: slice, m: slice, sims: Tensor) -> None:
        # Comparing into floats and summing those is several times faster than summing booleans, and exact: each
        # sum stays far below 2**24.
        beaten = beaten_RC[: sims.shape[0], : sims.shape[1]]
        i2t[n] += torch.ge(sims, best_N[n, None], out=beaten).sum(1).long()
        t2i[m] += torch.ge(sims, own_M[None, m], out=beaten).sum(0).long()

    for diagonal in blocks:
        texts_CD[: diagonal[3] - diagonal[2]].copy_(texts_MD[diagonal[2] : diagonal[3]])
        n, m, sims = block(diagonal, diagonal)
        row, column = owners_M[m] - n.start, torch.arange(sims.shape[1], device=device)
        own_M[m] = sims[row, column]
        best_N[n] = torch.full_like(best_N[n], -torch.inf).scatter_reduce(0, row, own_M[m], "amax")
        sims[row, column] = -torch.inf
        count(n, m, sims)
    for columns in blocks:
        texts_CD[: columns[3] - columns[2]].copy_(texts_MD[columns[2] : columns[3]])
        for rows in blocks:
            if rows is not columns:
                count(*block(rows, columns))
    return RetrievalRanks(i2t, t2i)
