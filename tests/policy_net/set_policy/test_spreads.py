"""Spreads of a set policy's parameters: one for each, in the order of the weights."""

import numpy as np
import pytest

from policy_net.exchange.spec import PRICES, SESSIONS, SetSpec, split_weights
from policy_net.set_policy.spreads import EXPONENT_SPREAD, PS_PRICE_SPREAD, RESIDUAL_SPREAD, SESSION_SPREAD, spreads_of


@pytest.mark.parametrize("hidden", [(), (3,)])
@pytest.mark.parametrize("prices", [0, 1])
@pytest.mark.parametrize("sessions", [0, 1])
def test_every_parameter_has_the_spread_of_its_group(hidden: tuple[int, ...], prices: int, sessions: int) -> None:
    spec = SetSpec(hidden=hidden, prices=prices, sessions=sessions)
    found = split_weights(spreads_of(spec), spec)
    assert list(found) == [name for name, _ in spec.layout()]
    for name, values in found.items():
        if name == PRICES:
            assert values.tolist() == pytest.approx([EXPONENT_SPREAD] * 4 + list(PS_PRICE_SPREAD))
        else:
            assert np.allclose(values, SESSION_SPREAD if name == SESSIONS else RESIDUAL_SPREAD)
