"""The sparse gradient of a batch as a matrix."""

from torch import Tensor

from goal_sweep.goal_core.objectives.sparse_gradient import Gradient, SparseGradient


def dense(gradient: Gradient) -> Tensor:
    """dL/dS, shape (N, N), entries of one place added."""
    assert isinstance(gradient, SparseGradient)
    rows, columns, values = gradient.entries()
    num_pairs = len(gradient.pull)
    return values.new_zeros(num_pairs, num_pairs).index_put_((rows, columns), values, accumulate=True)
