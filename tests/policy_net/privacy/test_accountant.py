"""The accountant beside the closed form of the Gaussian mechanism, and beside the library's own composition."""

import math

import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import norm

from policy_net.privacy import settings as privacy_settings
from policy_net.privacy.settings import NoiseSettings, budget, epsilon


def closed_delta(spent: float, at_epsilon: float) -> float:
    """Source: Balle & Wang 2018, Theorem 8, at μ = √(Σ 1/z²)."""
    mu = math.sqrt(spent)
    below = math.exp(at_epsilon + norm.logcdf(-mu / 2 - at_epsilon / mu))
    return float(norm.cdf(mu / 2 - at_epsilon / mu) - below)


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 2.0, 5.0, 20.0])
@pytest.mark.parametrize("updates", [1, 40, 1000])
def test_epsilon_is_the_closed_form_s(multiplier: float, updates: int) -> None:
    spent = updates / multiplier**2
    assert closed_delta(spent, epsilon(spent, 1e-5)) == pytest.approx(1e-5, rel=1e-4)


def test_epsilon_is_what_the_library_composes_step_by_step() -> None:
    composed = PLDAccountant().compose(SelfComposedDpEvent(GaussianDpEvent(8.0), 50)).get_epsilon(1e-5)
    assert epsilon(50 / 8.0**2, 1e-5) == pytest.approx(composed, rel=2e-3)


def test_one_update_at_multiplier_1_costs_what_the_literature_says() -> None:
    assert epsilon(1.0, 1e-5) == pytest.approx(4.3772, abs=1e-3)
    assert epsilon(0.0, 1e-5) == 0.0


@settings(max_examples=40, deadline=None)
@given(st.floats(0.1, 200.0), st.sampled_from([1e-3, 1e-5, 1e-8]))
def test_a_budget_is_never_more_than_its_epsilon_and_hardly_less(target: float, delta: float) -> None:
    assert 0.999 * target <= epsilon(budget(target, delta), delta) <= target


def noise(**changes) -> NoiseSettings:
    return NoiseSettings.model_validate({"clip_norm": 1.0, "noise_multiplier": 10.0, **changes})


def test_the_last_update_that_is_allowed_is_the_last_that_costs_no_more_than_the_target() -> None:
    limited = noise(target_epsilon=5.0)
    most = int(budget(5.0, 1e-5) / limited.cost)
    assert epsilon(most * limited.cost, 1e-5) <= 5.0 < epsilon((most + 1) * limited.cost, 1e-5)
    assert limited.allows((most - 1) * limited.cost)
    assert not limited.allows(most * limited.cost)
    assert noise().allows(1e9)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"noise_multiplier": 0.0}, "greater than 0"),
        ({"clip_norm": 0.0}, "greater than 0"),
        ({"clip_norm": float("nan")}, "finite"),
        ({"delta": 0.0}, "greater than 0"),
        ({"delta": 0.5}, "less than 0.1"),
        ({"noise_multiplier": 1.0, "target_epsilon": 1.0}, "allows no update at noise_multiplier = 1"),
        ({"epsilon": 3.0}, "not permitted"),
    ],
)
def test_what_contradicts_itself_is_refused_in_one_line(changes, said) -> None:
    with pytest.raises(ValidationError, match=said) as caught:
        noise(**changes)
    assert caught.value.error_count() == 1


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setattr(privacy_settings.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ValidationError, match=r"pip install 'fedl2\[privacy\]'"):
        noise()
