"""The GOAL objectives: 5 pair weights x 3 triplet weights, applied directly as gradients.

A batch of N image-text pairs holds 2N triplets (anchor, positive, hardest negative). A triplet weight T(s_p, s_n) says
how much a triplet matters, a pair weight P = (P+, P-) how hard its positive is pulled and its negative pushed:
dL/ds_p = -T P+ and dL/ds_n = T P-. Most of the 15 products are no function's gradient, so no loss is differentiated.

Read in this order: `weights` (what a weight sees, and the science), `mining` (how a batch is searched),
`sparse_gradient` (how a gradient of 3N numbers reaches the embeddings), `gradient_objective` (all of it together, of
one cell or several at once). The room imports no other room but `basics`.

Source: Xuan & Chen, "Dissecting Deep Metric Learning Losses for Image-Text Retrieval", 2022, arXiv:2210.13188.
"""

from goal_sweep.goal_core.objectives.config import ObjectiveConfig
from goal_sweep.goal_core.objectives.variants import LOSS, VARIANTS, accepted_parameters, list_objectives
from goal_sweep.goal_core.objectives.weights import PairWeights, Triplets, baselines, pair_weights, triplet_weights
