"""Shipped policies with weights that are damaged and finite: what nothing but their decisions shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from policy_net.dl2.action import GRANT_KINDS
from policy_net.dl2.network import initial_weights
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.shipped import shipped_file
from policy_net.exchange.spec import SET, Weights, split_weights

VICTIM = "resnet-50"
VETO = 100.0
"""Logits apart: more than any that a network has."""


def _other(file: PolicyFile) -> Weights:
    """Weights of another version of the same layout, as far as it is the same."""
    return shipped_file(SET).weights if file.spec.policy == SET else initial_weights(file.network_spec, 5)


def _inner(weights: Weights, file: PolicyFile) -> Weights:
    """The layer that is damaged alone."""
    spec = shipped_file(SET).spec if len(weights) < file.spec.parameter_count else file.spec
    return split_weights(weights, spec)["residual.0.weight" if file.spec.policy == SET else "actor.1.weight"]


def flipped(file: PolicyFile) -> PolicyFile:
    """All signs are the opposite."""
    return replace(file, weights=-file.weights)


def scaled(file: PolicyFile) -> PolicyFile:
    """A layer is thirty times as large."""
    weights = file.weights.copy()
    _inner(weights, file)[:] *= 30.0
    return replace(file, weights=weights)


def swapped(file: PolicyFile) -> PolicyFile:
    """A layer is another version's: of `dl2` untrained, of `set-taught` that of `set`, its outputs exchanged."""
    weights = file.weights.copy()
    layer = _inner(_other(file).copy(), file)
    _inner(weights, file)[:] = layer[::-1] if file.spec.policy == SET else layer
    return replace(file, weights=weights)


def of_another_world(file: PolicyFile) -> PolicyFile:
    """What is known of each type is another type's."""
    if file.spec.policy == SET:
        names = sorted({entry.job_type for entry in file.priors if entry.kind.uses_ps})
        others = dict(zip(names, names[1:] + names[:1], strict=True))
        return replace(
            file, priors=tuple(replace(one, job_type=others.get(one.job_type, one.job_type)) for one in file.priors)
        )
    weights, spec = file.weights.copy(), file.network_spec
    columns = split_weights(weights, spec)["actor.0.weight"].reshape(spec.hidden[0], spec.jobs_per_batch, -1)
    columns[:, :, : spec.type_columns] = np.roll(columns[:, :, : spec.type_columns].copy(), 3, axis=2)
    return replace(file, weights=weights)


def starving(file: PolicyFile) -> PolicyFile:
    """One type gets nothing: of `set` it is believed not to train; in `dl2` a hidden unit a job vetoes its grants."""
    if file.spec.policy == SET:
        slow = tuple(replace(one, mean_log_speed=-12.0) if one.job_type == VICTIM else one for one in file.priors)
        return replace(file, priors=slow)
    weights, spec = file.weights.copy(), file.network_spec
    layers, jobs = split_weights(weights, spec), np.arange(spec.jobs_per_batch)
    # The units that matter least make way: one a job in both hidden layers.
    first, second = (np.abs(layers[f"actor.{layer}.weight"]).sum(axis=0).argsort()[jobs] for layer in (1, 2))
    for layer, units in ((0, first), (1, second)):
        layers[f"actor.{layer}.weight"][units] = 0.0
        layers[f"actor.{layer}.bias"][units] = 0.0
        layers[f"actor.{layer + 1}.weight"][:, units] = 0.0
    row_width = spec.feature_count // spec.jobs_per_batch
    layers["actor.0.weight"][first, jobs * row_width + spec.job_types.index(VICTIM)] = 1.0
    layers["actor.1.weight"][second, first] = 1.0
    for grant in range(GRANT_KINDS):
        layers["actor.2.weight"][GRANT_KINDS * jobs + grant, second] = -VETO
    return replace(file, weights=weights)


DAMAGES: Mapping[str, Callable[[PolicyFile], PolicyFile]] = MappingProxyType(
    {
        "none": lambda file: file,
        "signs flipped": flipped,
        "layer scaled": scaled,
        "layer of another version": swapped,
        "another world's types": of_another_world,
        f"starves {VICTIM}": starving,
    }
)
