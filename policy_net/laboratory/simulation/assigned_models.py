"""Which model a recorded job is taken to train, where its record does not say: drawn from the seed and the job's id.

Thus a job is of the same kind and model in every window and under every cluster size.
"""

from __future__ import annotations

import hashlib

from policy_net.domain import JobKind
from policy_net.laboratory.catalogue import CATALOGUE, ModelProfile, find_model, model_names
from policy_net.laboratory.simulation.job_kinds import JobKindChoice
from policy_net.laboratory.workloads.loaders.record import RecordedJob


def stated_profile(job: RecordedJob, choice: JobKindChoice, seed: int) -> ModelProfile | None:
    """The model that the record names, if one of the kinds knows it; the job's drawn kind comes first."""
    if not job.model:
        return None
    drawn = _drawn_kind(job.job_id, choice, seed)
    for kind in (drawn, *(kind for kind in choice.kinds if kind is not drawn)):
        profile = find_model(job.model, kind)
        if profile is not None:
            return profile
    return None


def assigned_profile(job: RecordedJob, choice: JobKindChoice, seed: int) -> ModelProfile:
    """A model of the job's drawn kind; only models whose workers need a GPU."""
    names = model_names(_drawn_kind(job.job_id, choice, seed), on_gpus=True)
    return CATALOGUE[names[int.from_bytes(_digest(job.job_id, seed)[:8], "big") % len(names)]]


def _drawn_kind(job_id: str, choice: JobKindChoice, seed: int) -> JobKind:
    """By other bytes than the model, so that kind and model are independent."""
    kinds = choice.kinds
    return kinds[int.from_bytes(_digest(job_id, seed)[8:16], "big") % len(kinds)]


def _digest(job_id: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{job_id}".encode()).digest()
