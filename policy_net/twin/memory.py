"""Memory that Python and C share: the structures of `core/twin.h`, field by field, as numpy and ctypes see them.

The parameters of the twin's policy are one flat vector: what may be learned stands side by side, named once.
A test compares sizes with the library's, and the library is refused where they differ. New parameters are added before
the residual's, whose number depends on its layers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from policy_net.exchange.spec import SET_INPUTS, SetSpec
from policy_net.set_policy.residual import LOUDNESS_ON_ONE_MACHINE, Residual
from policy_net.set_policy.sessions import BINS, SessionTerms
from policy_net.set_policy.steps import PriceTerms

CELL = np.dtype([("samples", "f8"), ("seconds", "f8"), ("ps", "i8"), ("workers", "i8"), ("count", "i8")])
"""What was seen of a split."""

MEAN = np.dtype([("mean", "f8"), ("count", "i8")])
"""A running mean of logarithms."""

JOB = np.dtype(
    [
        *((name, "f8") for name in ("submit_seconds", "total_epochs", "declared_epochs", "samples_per_epoch")),
        ("speed_factor", "f8"),
        ("report_factor", "f8"),
        ("noise_key", "u8"),
        *((name, "i8") for name in ("type", "trains_as", "uses_ps", "work_known")),
        *((name, "i8") for name in ("worker_cpu", "worker_gpu", "ps_cpu", "ps_gpu", "worker_class", "ps_class")),
        *((name, "i8") for name in ("requested_workers", "requested_ps", "max_workers", "max_ps")),
        *((name, "i8") for name in ("min_workers", "min_ps")),
    ]
)
"""A job as it is submitted; `declared_epochs` is NaN where the user declared the truth."""

_ADDRESS, _FLOAT, _INTEGER = ctypes.c_void_p, ctypes.c_double, ctypes.c_int64
FIT = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
"""Fits the type of this number to its cells, where the compiled code cannot; 0 if that went well."""

CHANGE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_double)
"""Lets nodes come and go up to and including a time in seconds; 0 if that went well."""

UNIFORM = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(ctypes.c_double))
"""Gives the next random number, from 0 to 1, of a decision's draw; 0 if that went well."""

KEEP = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
"""Keeps the group of decisions that was drawn in this decision's state; 0 if that went well."""

ACTION = np.dtype([("probability", "f8"), ("index", "i8"), ("job", "i8"), ("draw", "i8")])
"""An action that was drawn."""

SESSION = np.dtype(
    [("gpus", "i8"), ("first_submit_seconds", "f8"), ("ended", "f8", (BINS,)), ("withdrawn", "f8", (BINS,))]
)
"""Jobs of unknown work that were submitted together."""


class TypeMemory(ctypes.Structure):
    """A job type: true speeds, and what is believed of them."""

    _fields_ = [
        *((name, _ADDRESS) for name in ("truth", "relative", "planned", "given", "hoped", "fitted")),
        *((name, _ADDRESS) for name in ("features", "expected_times", "prior_products", "prior_target")),
        *((name, _ADDRESS) for name in ("unseen_coefficients", "coefficients")),
        *((name, _ADDRESS) for name in ("prior_mean", "prior_smooth", "prior_sd_shape")),
        *((name, _FLOAT) for name in ("spread_smooth", "spread_cell", "deviation_unseen")),
        *(
            (name, _INTEGER)
            for name in (
                *("uses_ps", "prior_of_type", "known", "span_kind"),
                *("refit_at", "cells", "conditioned", "terms", "doubted", "splits"),
            )
        ),
        *((name, _ADDRESS) for name in ("cell", "conditioned_on")),
    ]


class GroupMemory(ctypes.Structure):
    """Decisions that are drawn in one state, to be compared with each other."""

    _fields_ = [
        *((name, _INTEGER) for name in ("draws", "every", "phase")),
        ("keep", KEEP),
        *((name, _INTEGER) for name in ("rows", "most_rows", "jobs")),
        *((name, _ADDRESS) for name in ("action", "features", "mask", "utility", "share")),
    ]


class NetworkMemory(ctypes.Structure):
    """The network of `dl2`, and how it is used."""

    _fields_ = [
        *((name, _INTEGER) for name in ("jobs_per_batch", "type_columns", "bundles", "reserves", "draws", "layers")),
        ("exploration", _FLOAT),
        *((name, _ADDRESS) for name in ("widths", "column", "weight", "finite")),
        ("uniform", UNIFORM),
        ("group", _ADDRESS),
    ]


class CaseMemory(ctypes.Structure):
    """Everything that a run is given, and where its results go."""

    _fields_ = [
        *((name, _INTEGER) for name in ("jobs", "types", "stated_types", "classes", "nodes", "most_nodes", "layers")),
        *((name, _INTEGER) for name in ("parameters", "changes_nodes", "nodes_pending", "most_idle", "most_waiting")),
        *((name, _INTEGER) for name in ("on_events", "pooled", "packed", "distance_matters", "plans_places")),
        *((name, _INTEGER) for name in ("learns", "silent", "with_sessions", "most_sessions", "scheduler", "fits")),
        *((name, _FLOAT) for name in ("slot_seconds", "debounce_seconds", "noise_variance")),
        *((name, _FLOAT) for name in ("resize_seconds", "resume_seconds", "start_seconds", "checkpoint_seconds")),
        *((name, _FLOAT) for name in ("refit_growth", "next_change_seconds", "gpu_seconds_before")),
        ("changed_at_seconds", _FLOAT),
        *((name, _ADDRESS) for name in ("job", "type", "node", "node_cpu", "node_gpu", "lost_at")),
        *((name, _ADDRESS) for name in ("class_cpu", "class_gpu", "class_limit", "widths", "parameter")),
        *((name, _ADDRESS) for name in ("ended", "passed", "restart_mean_seconds", "resized", "restarts_seen")),
        *((name, _ADDRESS) for name in ("start_at", "end_at", "longest_gap", "present_samples", "present_speed")),
        *((name, _ADDRESS) for name in ("starting_seconds", "training", "trained_size")),
        *((name, _ADDRESS) for name in ("sessions", "session_of", "session")),
        *((name, _ADDRESS) for name in ("span_seen", "span_believed", "place_reports")),
        ("fit", FIT),
        ("network", _ADDRESS),
        ("change", CHANGE),
    ]


class Standing(ctypes.Structure):
    """Where a run stands."""

    _fields_ = [
        *((name, _INTEGER) for name in ("status", "decisions", "unusable_allocations", "resizes", "resumes")),
        *((name, _INTEGER) for name in ("ended_jobs", "waiting_decisions", "idle_decisions")),
        *((name, _INTEGER) for name in ("losing_decisions", "present", "first")),
        *((name, _FLOAT) for name in ("time_seconds", "gpu_seconds", "available_gpu_seconds")),
        *((name, _FLOAT) for name in ("allocated_until_seconds", "pause_seconds", "training_gpu_seconds")),
        *((name, _FLOAT) for name in ("lost_training_seconds", "lost_before_seconds")),
    ]


SIZES = (
    ctypes.sizeof(CaseMemory),
    JOB.itemsize,
    ctypes.sizeof(TypeMemory),
    CELL.itemsize,
    ctypes.sizeof(Standing),
    SESSION.itemsize,
    MEAN.itemsize,
    ctypes.sizeof(NetworkMemory),
    ctypes.sizeof(GroupMemory),
    ACTION.itemsize,
)
"""In the order in which `twin_sizes` gives the library's."""


Array = NDArray[np.float64]


class Parameter(IntEnum):
    """Positions of the parameters that every policy has; the residual's weights and biases follow, layer by layer."""

    BOUND = 0
    LOUDNESS_ON_ONE_MACHINE = 1
    SPEED_EXPONENT = 2
    SPEED_EXPONENT_BY_CONTENTION = 3
    WORK_EXPONENT = 4
    WORK_EXPONENT_BY_CONTENTION = 5
    PS_PRICE = 6
    PS_PRICE_BY_CONTENTION = 7
    SCATTER = 8
    STRANGERS = 9
    UNRELATED = 10


def parameters_of(spec: SetSpec, residual: Residual, prices: PriceTerms, sessions: SessionTerms | None) -> Array:
    """The vector of a policy as it acts, shape (len(Parameter) + weights,)."""
    named = np.zeros(len(Parameter))
    named[Parameter.BOUND] = spec.bound
    named[Parameter.LOUDNESS_ON_ONE_MACHINE] = LOUDNESS_ON_ONE_MACHINE
    named[Parameter.SPEED_EXPONENT : Parameter.SCATTER] = prices.flat
    named[Parameter.SCATTER :] = (sessions or SessionTerms()).flat
    return np.concatenate((named, residual.flat))


def widths_of(spec: SetSpec, outputs: int) -> Sequence[int]:
    """How wide the residual's layers are, from its inputs to its outputs."""
    return (SET_INPUTS, *spec.hidden, outputs)
