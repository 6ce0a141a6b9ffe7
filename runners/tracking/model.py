"""Loads a model that MLflow lists: what ``mlflow.pyfunc.load_model("models:/ID")`` calls.

The model in MLflow is a reference to a checkpoint in the results folder, not a copy of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from goal_core.basics.errors import WeightsError
from goal_core.data.text import EncodedCaptions
from goal_core.evaluation import OpenedCheckpoint, open_checkpoint
from goal_core.evaluation.embedding import TEXT_CHUNK
from runners.store.storage.place import Place


class RetrievalModel:
    """A trained cell with its data.

    Args:
        path: its checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: OpenedCheckpoint = open_checkpoint(path)
        """The encoder, the description of the training and the dataset."""

    def predict(self, captions: pd.DataFrame | Sequence[str], params: dict[str, Any] | None = None) -> NDArray[Any]:
        """Embed captions in the joint space, where the scalar product with an image's embedding is the similarity.

        Args:
            captions: M captions, or a frame whose first column holds them.
            params: not used; MLflow passes it.

        Returns:
            (M, D) float32, rows of length 1.
        """
        texts = list(captions.iloc[:, 0] if isinstance(captions, pd.DataFrame) else captions)
        encoder = self.opened.encoder
        encoded = EncodedCaptions.of([str(text) for text in texts], self.opened.description.vocabulary)
        order = np.argsort(-encoded.lengths, kind="stable")  # as in evaluation: the longest first
        encoder.train(False)
        embedded: list[tuple[int, NDArray[Any]]] = []
        with torch.inference_mode(), encoder.autocast():
            for start in range(0, len(order), TEXT_CHUNK):
                rows = order[start : start + TEXT_CHUNK]
                tokens, lengths = encoded.batch(rows)
                chunk = encoder.texts(tokens.to(encoder.device), lengths).float().cpu().numpy()
                embedded += zip(rows.tolist(), chunk, strict=True)
        return np.stack([row for _, row in sorted(embedded, key=lambda item: item[0])])

    def get_raw_model(self) -> OpenedCheckpoint:
        """The trained cell itself, for ``model.get_raw_model()`` of MLflow."""
        return self.opened


def _load_pyfunc(reference: str) -> RetrievalModel:
    """Load the model that a reference names.

    Args:
        reference: a JSON file with the checkpoint's path in the results folder, and the folder's last known place.

    Raises:
        WeightsError: the checkpoint is not there any more.
    """
    content = json.loads(Path(reference).read_text())
    # The reference lies inside the results folder, also after the folder has moved, unless a server sent it here.
    for folder in Path(reference).absolute().parents:
        if (path := folder / content["checkpoint"]).is_file():
            return RetrievalModel(path)
    place = Place.open(content["store"])
    if (path := place.storage.fetch(place.base / content["checkpoint"])).is_file():
        return RetrievalModel(path)
    raise WeightsError(f"no checkpoint {content['checkpoint']} in the results folder {content['store']}")
