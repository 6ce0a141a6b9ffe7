"""Evaluation: exact recall of embeddings, of a model on a split, and of checkpoints; and features of whole datasets.

`training` measures its cells with it, and the command line evaluates checkpoints; it does not depend on training.
"""

from typing import TYPE_CHECKING

from goal_sweep.goal_core.basics.exports import on_first_use

if TYPE_CHECKING:
    from goal_sweep.goal_core.evaluation.embedding import Embedded, EvalSplit, embed_split, prepare_split, split_inputs
    from goal_sweep.goal_core.evaluation.evaluate import (
        OpenedCheckpoint,
        check_same_queries,
        evaluate_ensemble,
        open_checkpoint,
    )
    from goal_sweep.goal_core.evaluation.extract import extract_features
    from goal_sweep.goal_core.evaluation.recalls import all_recalls_of, recalls_between, recalls_of, reranked_ranks
    from goal_sweep.goal_core.evaluation.retrieval import (
        EmbeddingError,
        NonFiniteEmbeddingError,
        RetrievalRanks,
        recall,
        retrieval_metrics,
        retrieval_ranks,
    )
    from goal_sweep.goal_core.evaluation.trained_model import RetrievalModel, load_model
else:
    __getattr__ = on_first_use(__name__, __file__)
