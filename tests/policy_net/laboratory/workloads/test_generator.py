from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.laboratory.catalogue import CATALOGUE, MODEL_NAMES
from policy_net.laboratory.workloads.generator import ARRIVAL_PATTERNS, SIZES, GeneratorSettings, generate
from policy_net.laboratory.workloads.sources import parse_generator

mixes = st.dictionaries(st.sampled_from(MODEL_NAMES), st.sampled_from([0.5, 1.0, 2.0]), min_size=1).map(
    lambda mix: {name: mix[name] for name in MODEL_NAMES if name in mix}
)
all_settings = st.builds(
    GeneratorSettings,
    jobs=st.integers(1, 80),
    arrivals=st.sampled_from(sorted(ARRIVAL_PATTERNS)),
    max_arrivals=st.integers(1, 10),
    sizes=st.sampled_from(SIZES),
    seed=st.integers(0, 2**63 - 1),
    mix=mixes,
)


@given(all_settings)
def test_the_name_of_a_workload_generates_it_again(settings: GeneratorSettings) -> None:
    workload = generate(settings)
    assert generate(parse_generator(workload.name)) == workload


@given(all_settings)
def test_jobs_are_of_the_mix_and_sized_within_bounds(settings: GeneratorSettings) -> None:
    workload = generate(settings)
    assert len(workload.jobs) == settings.jobs
    for job in workload.jobs:
        assert settings.mix.get(job.job_type, 0) > 0
        factor = job.total_epochs / CATALOGUE[job.job_type].nominal_epochs
        assert factor == 1 if settings.sizes == "fixed" else 0.1 <= factor <= 4 + 1e-9
        assert job.submit_time_seconds % 1200 == 0


def test_varied_sizes_have_a_mean_of_one_and_spread() -> None:
    jobs = generate(GeneratorSettings(jobs=4000, max_arrivals=10)).jobs
    factors = np.array([job.total_epochs / CATALOGUE[job.job_type].nominal_epochs for job in jobs])
    assert factors.mean() == pytest.approx(1.0, abs=0.05)
    assert np.log(factors).std() == pytest.approx(0.6, abs=0.05)


def test_weights_of_a_mix_are_proportions() -> None:
    mix = {"vgg-16": 3.0, "dssm": 1.0}
    count = Counter(job.job_type for job in generate(GeneratorSettings(jobs=4000, mix=mix)).jobs)
    assert count["vgg-16"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_seeds_differ_and_one_choice_leaves_the_others_as_they_were() -> None:
    one = generate(GeneratorSettings(seed=1)).jobs
    assert one != generate(GeneratorSettings(seed=2)).jobs
    other_arrivals = generate(GeneratorSettings(seed=1, arrivals="poisson")).jobs
    assert [job.job_type for job in one] == [job.job_type for job in other_arrivals]
    assert [job.total_epochs for job in one] == [job.total_epochs for job in other_arrivals]


def test_the_suggested_cluster_follows_jobs_until_arrivals_bound_it() -> None:
    assert generate(GeneratorSettings(jobs=20)).suggested_nodes == 8
    assert generate(GeneratorSettings(jobs=60)).suggested_nodes == 24
    assert generate(GeneratorSettings(jobs=600)).suggested_nodes == 24
    assert generate(GeneratorSettings(jobs=200, max_arrivals=10)).suggested_nodes == 80


def test_the_first_jobs_of_a_seed_are_known() -> None:
    """A workload is data that results are compared on: a change of the generator must not go unseen."""
    jobs = generate(GeneratorSettings(seed=9973)).jobs[:4]
    assert [(job.job_type, job.submit_time_seconds) for job in jobs] == [
        ("wlm", 0.0),
        ("inception-bn", 0.0),
        ("wlm", 1200.0),
        ("vgg-16", 1200.0),
    ]
