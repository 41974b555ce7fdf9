"""Constants of the simulator's truth; `speed.FittedSpeedModel` says what they mean.

We fitted them to the speeds that DL2's authors measured and published with their code (MXNet, synchronous training,
1–16 parameter servers × 1–16 workers, eight models). The fit, and how well it matches: `benchmarks.speed_fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class SpeedConstants:
    """What one model's log speed (samples/s) is made of.

    Attributes:
        servers: log speed with one worker, for 1, 2, … 16 parameter servers.
        workers: coefficients of (log workers)^1, ^2, …
        interaction: coefficients of (log servers)^i·(log workers)^j, row i = 1, 2, …, column j = 1, 2, …
    """

    servers: tuple[float, ...]
    workers: tuple[float, ...]
    interaction: tuple[tuple[float, ...], ...]


# fmt: off
FITTED_SPEEDS: Mapping[str, SpeedConstants] = MappingProxyType(
    {
        "resnet-50": SpeedConstants(
            servers=(
                2.7528, 3.38129, 3.8406, 3.84667, 3.99472, 3.79537, 3.87792, 3.96676,
                3.97899, 4.07978, 4.04551, 4.05914, 4.07419, 4.09535, 4.13576, 4.11472,
            ),
            workers=(
                1.13153, -1.32036, 0.22376, 0.03473,
            ),
            interaction=(
                (-2.21086, 2.25167, -0.59242),
                (1.13359, -1.07263, 0.27609),
                (-0.17119, 0.15907, -0.0401),
            ),
        ),
        "vgg-16": SpeedConstants(
            servers=(
                2.26144, 2.67186, 2.86266, 2.9305, 3.01322, 3.11094, 3.17577, 3.2023,
                3.2492, 3.24206, 3.27173, 3.29273, 3.33649, 3.34003, 3.33553, 3.32023,
            ),
            workers=(
                -0.88923, 1.4473, -0.99042, 0.19785,
            ),
            interaction=(
                (-0.28005, 0.51254, -0.17893),
                (0.12437, -0.21472, 0.07688),
                (0.00521, 0.00473, -0.00415),
            ),
        ),
        "resnext-110": SpeedConstants(
            servers=(
                5.95246, 5.98155, 6.13563, 6.22411, 6.26131, 6.18163, 6.10245, 6.09341,
                6.09949, 6.10452, 6.11052, 6.1158, 6.11831, 6.12768, 6.14219, 6.15112,
            ),
            workers=(
                -0.06052, -0.31281, -0.20182, 0.10283,
            ),
            interaction=(
                (-0.03725, 1.05001, -0.40415),
                (-0.0612, -0.4673, 0.1972),
                (0.01615, 0.07982, -0.03335),
            ),
        ),
        "inception-bn": SpeedConstants(
            servers=(
                5.13838, 5.23499, 5.37397, 5.44456, 5.45203, 5.38339, 5.32491, 5.32668,
                5.34757, 5.35121, 5.34818, 5.34221, 5.33455, 5.33372, 5.33623, 5.33664,
            ),
            workers=(
                0.12181, -0.14137, -0.30402, 0.114,
            ),
            interaction=(
                (-0.59497, 1.58897, -0.51642),
                (0.45091, -0.90886, 0.2859),
                (-0.09861, 0.17615, -0.05266),
            ),
        ),
        "seq2seq": SpeedConstants(
            servers=(
                5.62345, 5.79317, 5.9259, 6.07796, 6.19292, 6.18286, 6.14925, 6.11596,
                6.11089, 6.15246, 6.19785, 6.20015, 6.16072, 6.15895, 6.17964, 6.23082,
            ),
            workers=(
                -0.51781, 1.21306, -0.8984, 0.18631,
            ),
            interaction=(
                (0.00526, -0.0639, 0.00752),
                (-0.17348, 0.40342, -0.12285),
                (0.07216, -0.14362, 0.0439),
            ),
        ),
        "cnn-text-classification": SpeedConstants(
            servers=(
                4.12734, 4.18888, 4.23968, 4.25299, 4.25739, 4.24554, 4.23993, 4.22105,
                4.21087, 4.21585, 4.22828, 4.23069, 4.23362, 4.23926, 4.24881, 4.26137,
            ),
            workers=(
                -0.05917, 0.51801, -0.34408, 0.05614,
            ),
            interaction=(
                (-0.05903, 0.11935, -0.03832),
                (0.07258, -0.0445, 0.01455),
                (-0.01144, -0.00346, 0.00109),
            ),
        ),
        "dssm": SpeedConstants(
            servers=(
                6.13222, 6.15838, 6.17985, 6.17905, 6.18857, 6.19884, 6.21738, 6.21152,
                6.19994, 6.19057, 6.18824, 6.18966, 6.19359, 6.19094, 6.18599, 6.17652,
            ),
            workers=(
                0.44657, 0.76207, -0.61223, 0.11451,
            ),
            interaction=(
                (-0.34632, 0.31242, -0.06783),
                (0.2486, -0.2494, 0.05364),
                (-0.05614, 0.05731, -0.01189),
            ),
        ),
        "wlm": SpeedConstants(
            servers=(
                5.08294, 5.52156, 5.8321, 6.01465, 6.20102, 6.15688, 6.17426, 6.1496,
                6.13208, 6.13054, 6.13556, 6.09459, 6.05951, 6.02643, 6.00381, 6.03488,
            ),
            workers=(
                -0.10312, 0.43719, -0.55925, 0.14792,
            ),
            interaction=(
                (-0.84121, 0.9134, -0.25601),
                (0.22275, -0.24207, 0.05937),
                (0.02336, -0.0153, 0.00608),
            ),
        ),
    }
)
# fmt: on
