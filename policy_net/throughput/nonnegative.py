"""Least squares without negative coefficients, which has an answer for every sound problem.

Scipy's solver gives up after three steps an unknown; well-conditioned problems of five unknowns may need sixteen (scipy
1.17). Then the sets of positive coefficients are tried one by one: a solution is the plain least-squares solution on
its own positive coefficients, and of all sets whose plain solution has no negative coefficient it is the one that
leaves least. With at most `MOST_UNKNOWNS` unknowns that takes a few milliseconds.
Source: Lawson & Hanson 1995, chapter 23, whose active-set method scipy's `nnls` is; the second way is its definition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


# Least squares without negative coefficients, from sums of products: few unknowns, and written out term by term.
#
# Whoever follows this order of sums, as the compiled twin does, has the same coefficients to the last digit, and
# whoever plans on them takes the same decisions at ties. A numerical library's last digit depends on the machine it
# runs on.
# Source: Lawson & Hanson 1995, chapter 23, on the normal equations, which are solved by Cholesky's factors.

MOST_STEPS = 100
ROUNDING = 1e-12
"""A slope that is a smaller share of what it is the difference of is none."""
LEAST_PIVOT = 1e-13
"""A column that is this nearly a sum of others is not told apart from it: squares of figures lie too far apart."""

Matrix = Sequence[Sequence[float]]


def nonnegative_of_moments(moments: Matrix, target: Sequence[float]) -> list[float] | None:
    """The coefficients ≥ 0 of least xᵀMx/2 − tᵀx, shape (n,), for positive definite M; None if rounding is in the way.

    Args:
        moments: M, shape (n, n), of which the lower half counts.
    """
    lower = [moments[one][other] for one in range(len(target)) for other in range(one + 1)]
    if not all(math.isfinite(value) for value in (*lower, *target)):
        return None
    found = [0.0] * len(target)
    positive: list[int] = []
    refused: set[int] = set()
    for _ in range(MOST_STEPS):
        added = _steepest(moments, target, found, {*positive, *refused})
        if added is None:
            return found if all(math.isfinite(value) for value in found) else None
        candidates = sorted([*positive, added])
        solution = _solved(moments, target, candidates)
        if solution is None:
            return None
        if solution[added] <= 0.0:  # by rounding alone
            refused.add(added)
            continue
        while any(solution[one] <= 0.0 for one in candidates):
            share, first = math.inf, -1
            for one in candidates:
                if solution[one] <= 0.0 and found[one] / (found[one] - solution[one]) < share:
                    share, first = found[one] / (found[one] - solution[one]), one
            if first < 0:
                return None
            for one in candidates:
                found[one] = found[one] + share * (solution[one] - found[one])
            found[first] = 0.0
            candidates = [one for one in candidates if found[one] > 0.0]
            solution = _solved(moments, target, candidates)
            if solution is None:
                return None
        found, positive = solution, candidates
        refused.clear()
    return None


def _steepest(moments: Matrix, target: Sequence[float], found: Sequence[float], without: set[int]) -> int | None:
    """Which coefficient to let grow: the one with the largest slope, if any is above zero; the first of equal ones."""
    chosen, largest = None, 0.0
    for one in range(len(target)):
        if one in without:
            continue
        slope, size = target[one], abs(target[one])
        for other in range(len(target)):
            term = (moments[one][other] if other <= one else moments[other][one]) * found[other]
            slope -= term
            size += abs(term)
        if slope > ROUNDING * size and slope > largest:
            chosen, largest = one, slope
    return chosen


def _solved(moments: Matrix, target: Sequence[float], chosen: Sequence[int]) -> list[float] | None:
    """The plain solution of the chosen coefficients, the others zero; None without a sound one."""
    lower: list[list[float]] = []
    right: list[float] = []
    for at, one in enumerate(chosen):
        row: list[float] = []
        for before in range(at):
            left = moments[one][chosen[before]]
            for k in range(before):
                left -= row[k] * lower[before][k]
            row.append(left / lower[before][before])
        pivot, value = moments[one][one], target[one]
        for k in range(at):
            pivot -= row[k] * row[k]
            value -= row[k] * right[k]
        if not pivot > LEAST_PIVOT * moments[one][one]:
            return None
        row.append(math.sqrt(pivot))
        lower.append(row)
        right.append(value / row[at])
    solution = [0.0] * len(target)
    for at in range(len(chosen) - 1, -1, -1):
        value = right[at]
        for k in range(at + 1, len(chosen)):
            value -= lower[k][at] * solution[chosen[k]]
        solution[chosen[at]] = value / lower[at][at]
    return solution
