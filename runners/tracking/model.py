"""Loads a model that MLflow lists: what ``mlflow.pyfunc.load_model("models:/ID")`` calls.

The model in MLflow is a reference to a checkpoint in the results folder, not a copy of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.evaluation.trained_model import RetrievalModel, load_model
from goal_sweep.runners.store import Store


class CaptionEncoder:
    """What MLflow's ``predict`` asks: a model as one of captions. ``get_raw_model`` gives it whole.

    Args:
        model: the trained model.
    """

    def __init__(self, model: RetrievalModel) -> None:
        self._model = model

    def predict(self, captions: pd.DataFrame | Sequence[str], params: dict[str, Any] | None = None) -> NDArray[Any]:
        """Embed captions in the joint space, where the scalar product with an image's embedding is the similarity.

        Args:
            captions: M captions, or a frame whose first column holds them.
            params: not used; MLflow passes it.

        Returns:
            (M, D) float32, rows of length 1.
        """
        texts = captions.iloc[:, 0] if isinstance(captions, pd.DataFrame) else captions
        return self._model.encode_texts([str(text) for text in texts])

    def get_raw_model(self) -> RetrievalModel:
        """The model, which also encodes pictures and searches them."""
        return self._model


def _load_pyfunc(reference: str) -> CaptionEncoder:
    """Load the model that a reference names.

    Args:
        reference: a JSON file with the checkpoint's path in the results folder, and the folder's last known place.

    Raises:
        WeightsError: the checkpoint is not there any more.
    """
    content = json.loads(Path(reference).read_text())
    # The reference lies inside the results folder, also after the folder has moved, unless a server sent it here.
    folders = [*Path(reference).absolute().parents]
    found = [path for folder in folders if (path := folder / content["checkpoint"]).is_file()]
    if not found:
        found = [path for path in [Store(content["store"]).fetch(content["checkpoint"])] if path.is_file()]
    if not found:
        raise WeightsError(f"no checkpoint {content['checkpoint']} in the results folder {content['store']}")
    return CaptionEncoder(load_model(found[0]))
