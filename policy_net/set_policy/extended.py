"""A `set` policy with further numbers to learn: prices, or the model of sessions.

With the usual prices it acts as before; with sessions, it ranks jobs of unknown work by those submitted with them.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PRICES_VERSION, SESSIONS_VERSION, split_weights
from policy_net.set_policy.policy import set_spec_of

GROUPS = {"prices": PRICES_VERSION, "sessions": SESSIONS_VERSION}
"""Groups of a spec (`exchange.spec.SetSpec`) and the version that a file gets."""


def extended(content: PolicyFile, label: str, groups: Collection[str] = tuple(GROUPS)) -> PolicyFile:
    """The policy of a file with further groups; all others keep their numbers.

    Raises:
        BadInput: the file has one of them already.
        PolicyFileError: it holds another kind of policy.
    """
    spec = set_spec_of(content, label)
    there = [group for group in GROUPS if group in groups and getattr(spec, group)]
    if there:
        raise BadInput(f"{label}: has {' and '.join(there)} already; leave --with {there[0]} out")
    wider = spec.model_copy(update={group: GROUPS[group] for group in groups})
    weights = np.zeros(wider.parameter_count, dtype=np.float32)
    before = split_weights(content.weights, spec)
    for name, values in split_weights(weights, wider).items():
        if name in before:
            values[:] = before[name]
    card = {**content.card, "extended_with": ", ".join(sorted(groups)), "extended_from": spec.digest}
    return PolicyFile(wider, weights, card, content.priors)
