"""What the demo says where there is no terminal."""

from io import StringIO

from rich.console import Console

from deploy.local.display import LINE_WORDS, Display
from deploy.local.watch import ClusterNow, FleetNow


def cluster(**changes: object) -> ClusterNow:
    facts = dict.fromkeys(ClusterNow.__dataclass_fields__, 0)
    return ClusterNow(**{**facts, "name": "vision", "time_seconds": 24_000.0, "done": 1, **changes})


def test_a_line_names_the_unit_of_every_figure() -> None:
    stream = StringIO()
    display = Display(1200.0, Console(file=stream, width=500))
    clusters = (cluster(avg_jct_seconds=9000.0), cluster(name="mixed", done=12, drf_jct_seconds=7200.0))
    display.fleet(FleetNow(77, 70, 0, 2.0, 4, clusters), 31.0)
    display.fleet(FleetNow(78, 71, 0, 2.0, 4, clusters), 32.0)
    assert stream.getvalue() == (
        f"{LINE_WORDS}\n"
        "  31 s  head step 77, v4, median staleness 2 steps | vision slot 20, 1 job done, average JCT 2.50 h (DRF –);"
        " mixed slot 20, 12 jobs done, average JCT – (DRF 2.00 h)\n"
    )
