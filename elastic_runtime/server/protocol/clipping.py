"""Clipping by the global norm when nobody holds all gradients: parameter servers tell each other their blocks' norms.

The sum runs over the blocks in their order, whoever owns them, so that the norm does not depend on the number of PSs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_EPSILON = 1e-6
"""As in torch.nn.utils.clip_grad_norm_."""


class NormExchange:
    """Squared norms of the summed gradients of every block, step by step.

    Args:
        blocks: all parameter blocks of the model.
        clip_norm: the most that the global norm may be.
    """

    def __init__(self, blocks: frozenset[int], clip_norm: float) -> None:
        self._blocks = blocks
        self._clip_norm = clip_norm
        self._norms: dict[int, dict[int, float]] = {}
        self._applied = -1

    def add(self, step: int, norms: Mapping[int, float]) -> None:
        """Norms of some blocks, from this PS or another one; what comes twice is the same."""
        if step > self._applied:
            known = self._norms.setdefault(step, {})
            known.update((block, norm) for block, norm in norms.items() if block in self._blocks)

    def scale(self, step: int) -> float | None:
        """What to multiply the gradients of this step by; None while norms are missing."""
        norms = self._norms.get(step, {})
        if len(norms) < len(self._blocks):
            return None
        norm = math.sqrt(sum(norms[block] for block in sorted(norms)))
        return min(1.0, self._clip_norm / (norm + _EPSILON)) if math.isfinite(norm) else 1.0

    def applied(self, step: int) -> None:
        """This PS has applied the step; its norms are kept no longer."""
        self._applied = max(self._applied, step)
        for old in [known for known in self._norms if known <= step]:
            del self._norms[old]
