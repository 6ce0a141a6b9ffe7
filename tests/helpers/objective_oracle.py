"""A second implementation of the objectives: plain Python loops over lists of floats, from the paper's equations.

It imports neither the project nor an array library, so that the two implementations cannot share a mistake.
"""

import math
from dataclasses import dataclass

Matrix = list[list[float]]

PAIRS = ("con", "lin", "sig", "lin-ms", "sig-ms")
TRIPLETS = ("con", "nca", "cir")
"""The weights of the paper. This file knows no others."""


@dataclass
class Atoms:
    """All constants of an objective, with the paper's values as defaults."""

    margin: float = 0.2
    gate: bool = True
    tau: float = 10.0
    cir_shift: float = 0.0
    alpha: float = 2.0
    beta: float = 10.0
    lam: float = 0.5
    eps: float = 0.1
    strict: bool = True
    count_ties: bool = True
    empty: str = "neutral"


def released() -> Atoms:
    """The constants of the authors' code."""
    return Atoms(gate=False, cir_shift=0.5, strict=False, count_ties=False, empty="zero")


def tables() -> Atoms:
    """The reading that orders the objectives as the paper's tables do."""
    return Atoms(gate=False, tau=1.0, strict=False, count_ties=False, empty="zero")


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def triplet_weight(name: str, sp: float, sn: float, a: Atoms) -> float:
    if name == "con":
        return 1.0 if not a.gate or sn - sp + a.margin > 0 else 0.0
    if name == "nca":
        return sigmoid(a.tau * (sn - sp))
    if name == "cir":
        return sigmoid(a.tau * (sn * sn - sp * (2 - sp) + a.cir_shift))
    raise KeyError(name)


def pair_weight(name: str, sp: float, sn: float, P: list[float], N: list[float], a: Atoms) -> tuple[float, float]:
    """P+ and P- of one triplet, given the similarities in its two relative sets."""
    if name == "con":
        return 1.0, 1.0
    if name == "lin":
        return 1 - sp, sn
    if name == "sig":
        return sigmoid(-a.alpha * (sp - a.lam)), sigmoid(a.beta * (sn - a.lam))
    if name == "lin-ms":
        means = []
        for selected, members in ((sp, P), (sn, N)):
            gaps = [selected - r for r in members]
            count = len(gaps) if a.count_ties else sum(gap != 0 for gap in gaps)
            means.append(math.fsum(gaps) / count if count else 0.0)
        return (1 - means[0]) * (1 - sp), (1 + means[1]) * sn
    if name == "sig-ms":
        neutral = 1.0 if a.empty == "neutral" else 0.0
        m_pos = math.fsum(math.exp(a.alpha * (sp - r)) for r in P) / len(P) if P else neutral
        m_neg = math.fsum(math.exp(-a.beta * (sn - r)) for r in N) / len(N) if N else neutral
        return 1 / (m_pos + math.exp(a.alpha * (sp - a.lam))), 1 / (m_neg + math.exp(-a.beta * (sn - a.lam)))
    raise KeyError(name)


def matrix_product(X: Matrix, Y: Matrix) -> Matrix:
    """X Y^T."""
    return [[math.fsum(a * b for a, b in zip(x, y, strict=True)) for y in Y] for x in X]


def similarity_gradient(S: Matrix, pair: str, triplet: str, a: Atoms, ids: list[int] | None = None) -> Matrix:
    """dL/dS, entry by entry, both directions."""
    B = len(S)
    ids = list(range(B)) if ids is None else ids
    G = [[0.0] * B for _ in range(B)]
    lowest = min(S[k][k] for k in range(B))

    def above(value: float, threshold: float) -> bool:
        return value > threshold if a.strict else value >= threshold

    for transposed in (False, True):
        for i in range(B):
            row = [S[k][i] if transposed else S[i][k] for k in range(B)]
            negatives = [j for j in range(B) if ids[j] != ids[i]]
            if not negatives:
                continue
            hardest = negatives[0]
            for j in negatives:
                if row[j] > row[hardest]:
                    hardest = j
            sp, sn = row[i], row[hardest]
            P = [S[k][k] for k in negatives if above(sn + a.eps, S[k][k])]
            N = [row[j] for j in negatives if j != hardest and above(row[j], lowest - a.eps)]
            t = triplet_weight(triplet, sp, sn, a)
            p_pos, p_neg = pair_weight(pair, sp, sn, P, N, a)
            G[i][i] -= t * p_pos
            if transposed:
                G[hardest][i] += t * p_neg
            else:
                G[i][hardest] += t * p_neg
    return G


def embedding_gradients(
    X: Matrix, Y: Matrix, pair: str, triplet: str, a: Atoms, ids: list[int] | None = None
) -> tuple[Matrix, Matrix]:
    """dL/dX = G Y and dL/dY = G^T X."""
    G = similarity_gradient(matrix_product(X, Y), pair, triplet, a, ids)
    B, D = len(X), len(X[0])
    dX = [[math.fsum(G[i][j] * Y[j][d] for j in range(B)) for d in range(D)] for i in range(B)]
    dY = [[math.fsum(G[i][j] * X[i][d] for i in range(B)) for d in range(D)] for j in range(B)]
    return dX, dY
