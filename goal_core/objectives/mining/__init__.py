"""What a batch's weights are computed from, and how their gradient reaches the embeddings.

`batch` searches the similarities (`similarity`) for the hardest negatives, offers the relative sets (`relative_sets`),
and makes the gradient of the weights (`sparse_gradient`). All of it takes one batch, or those of several cells at once.
"""

from goal_sweep.goal_core.objectives.mining.batch import MinedBatch, mine
from goal_sweep.goal_core.objectives.mining.similarity import Place
from goal_sweep.goal_core.objectives.mining.sparse_gradient import AttachGradient, DenseGradient, Gradient
