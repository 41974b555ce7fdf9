"""Least squares without negative coefficients, which has an answer for every sound problem.

Scipy's solver walks from one set of positive coefficients to the next and gives up after three steps an unknown. There
are well-conditioned problems of five unknowns that need sixteen steps (scipy 1.17). Then the sets are tried one by one,
of which there are few. A solution is the plain least-squares solution on its own positive coefficients, and of all
sets whose plain solution has no negative coefficient it is the one that leaves least: with at most `MOST_UNKNOWNS`
unknowns that is some dozens of small systems, a few milliseconds.
Source: Lawson & Hanson 1995, chapter 23, whose active-set method scipy's `nnls` is; the second way is its definition.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST_UNKNOWNS = 10
"""Forms of speed have five."""


class NoFit(ArithmeticError):
    """A problem has no solution in floating-point numbers: it holds one that is not finite, or overflows."""


def nonnegative_fit(matrix: Array, target: Array) -> Array:
    """The coefficients ≥ 0, shape (n,), of least ‖matrix · coefficients − target‖, for shapes (m, n) and (m,).

    Raises:
        NoFit: the problem, or its solution, is not finite.
        ValueError: there are more than `MOST_UNKNOWNS` unknowns.
    """
    if matrix.shape[1] > MOST_UNKNOWNS:
        raise ValueError(f"{matrix.shape[1]} unknowns; at most {MOST_UNKNOWNS}")
    if not (np.isfinite(matrix).all() and np.isfinite(target).all()):
        raise NoFit("the least-squares problem holds values that are not finite")
    from scipy.optimize import nnls  # noqa: PLC0415  (a third of every program's start, and few of them fit)

    try:
        solution: Array = nnls(matrix, target)[0]
    except (RuntimeError, ArithmeticError, np.linalg.LinAlgError):
        solution = best_of_all_sets(matrix, target)
    if not (np.isfinite(solution).all() and (solution >= 0).all()):
        solution = best_of_all_sets(matrix, target)
    return solution


def best_of_all_sets(matrix: Array, target: Array) -> Array:
    """The same by trying every set of positive coefficients; of equals the one that is tried first.

    Raises:
        NoFit: a solution is not finite.
    """
    unknowns = matrix.shape[1]
    best, least = np.zeros(unknowns), float(target @ target)
    with np.errstate(over="ignore", invalid="ignore"):
        for size in range(1, unknowns + 1):
            for chosen in combinations(range(unknowns), size):
                columns = matrix[:, chosen]
                try:
                    found = np.linalg.lstsq(columns, target, rcond=None)[0]
                except np.linalg.LinAlgError:
                    continue
                left = columns @ found - target
                remains = float(left @ left)
                if (found >= 0).all() and remains < least:
                    best, least = np.zeros(unknowns), remains
                    best[list(chosen)] = found
    if not np.isfinite(best).all() or not np.isfinite(least):
        raise NoFit("the least-squares problem overflows")
    return best
