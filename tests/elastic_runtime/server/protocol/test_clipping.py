"""Gradients are scaled by the norm of all blocks, whoever holds them."""

import math

import pytest

from elastic_runtime.server.protocol.clipping import NormExchange, clip_scale


def test_gradients_are_scaled_down_to_the_norm_and_never_up() -> None:
    assert clip_scale({0: 9.0, 1: 16.0}, 1.0) == pytest.approx(0.2)
    assert clip_scale({0: 0.09, 1: 0.16}, 1.0) == 1.0


@pytest.mark.parametrize("squared_norm", [math.inf, math.nan])
def test_a_norm_that_is_not_finite_scales_nothing_so_that_it_spoils_the_step(squared_norm: float) -> None:
    assert clip_scale({0: squared_norm, 1: 1.0}, 1.0) == 1.0


def test_a_step_has_no_scale_before_the_norms_of_all_blocks_are_there() -> None:
    exchange = NormExchange(frozenset({0, 1}), 1.0)
    exchange.add(3, {0: 9.0, 7: 100.0})
    assert exchange.scale(3) is None, "block 7 is none of this model's parameters"
    exchange.add(3, {0: 9.0})
    assert exchange.scale(3) is None
    exchange.add(3, {1: 16.0})
    assert exchange.scale(3) == pytest.approx(0.2)
    exchange.on_applied(3)
    exchange.add(3, {0: 9.0, 1: 16.0})
    assert exchange.scale(3) is None, "what comes late is not kept"
