"""What the learner's tests are made of: a policy of 43 parameters, updates, settings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from global_learner.beliefs.belief_store import BeliefStore
from global_learner.beliefs.priors import FleetBeliefs, PriorsSource
from global_learner.registry.registry_thread import RegistryThread
from global_learner.settings import LearnerSettings
from global_learner.storage.update_log import read_records, segment_header, segment_name, segments
from global_learner.storage.update_records import AppliedUpdate, encode
from global_learner.telemetry import LearnerTelemetry
from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.exchange.spec import PolicySpec, SetSpec, Weights
from policy_net.exchange.wire import GradientUpdate

SPEC = PolicySpec(jobs_per_batch=1, type_columns=1, hidden=(2,))


def vector(seed: int, spec: PolicySpec = SPEC) -> Weights:
    return np.random.default_rng(seed).normal(size=spec.parameter_count).astype(np.float32)


def policy(spec: PolicySpec = SPEC, seed: int = 0) -> PolicyFile:
    return PolicyFile(spec, vector(seed, spec))


def update(number: int, **changes: Any) -> GradientUpdate:
    values: dict[str, Any] = {
        "cluster": "north",
        "incarnation": 1,
        "sequence": number,
        "base_step": 0,
        "spec_digest": SPEC.digest,
        "gradient": vector(1000 + number),
        "samples": 20,
        "effective_samples": 12.5,
        "replayed": True,
    }
    return GradientUpdate(**{**values, **changes})


def applied(step: int, **changes: Any) -> AppliedUpdate:
    rate = changes.pop("learning_rate", 1e-3)
    return AppliedUpdate(
        step=step,
        learning_rate=rate,
        active_clusters=1,
        unix_seconds=1_700_000_000.5 + step,
        update=update(step, **{"base_step": step - 1, **changes}),
    )


def write_segment(
    folder: Path, first_step: int, records: Sequence[AppliedUpdate], spec: PolicySpec | SetSpec = SPEC, group: int = 1
) -> Path:
    """A segment as the learner writes it behind those that are there, its records synced in groups of so many."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / segment_name(first_step)
    path.unlink(missing_ok=True)
    before = list(read_records(folder, spec.digest)) if segments(folder) < [path] else []
    checksum = before[-1][1] or 0 if before else 0
    data = segment_header(spec.digest, first_step, checksum)
    durable = first_step - 1
    for place, record in enumerate(records):
        if place % group == 0:
            durable = record.step - 1
        encoded = encode(record, checksum, durable)
        data += encoded.head + bytes(encoded.gradient)
        checksum = encoded.checksum
    path.write_bytes(data)
    return path


def fleet_beliefs(config: LearnerSettings, thread: RegistryThread, telemetry: LearnerTelemetry) -> FleetBeliefs:
    store = BeliefStore(config.state_dir, config.beliefs, thread.registry.commits)
    priors = PriorsSource(store, config.beliefs, thread.registry, telemetry)
    return FleetBeliefs(store, priors, config.beliefs, thread, telemetry, time.time)


def settings(folder: Path, spec: PolicySpec = SPEC, **sections: Any) -> LearnerSettings:
    """Settings of a learner in `folder`, its initial policy written."""
    initial = folder / "v1.safetensors"
    if not initial.exists():
        write_policy_file(initial, policy(spec))
    return LearnerSettings.model_validate(
        {
            "state_dir": folder / "state",
            "initial_policy": initial,
            "listen": "127.0.0.1:0",
            "port_file": folder / "ports.json",
            "telemetry": {"http_listen": None},
            **sections,
        }
    )
