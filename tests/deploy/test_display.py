"""What the demo says where there is no terminal."""

from io import StringIO

from rich.console import Console

from deploy.demonstration.display import LINE_WORDS, Display
from policy_net.exchange.generated import fleet_pb2


def test_a_line_names_the_unit_of_every_figure() -> None:
    stream = StringIO()
    display = Display(1200.0, Console(file=stream, width=500))
    fleet = fleet_pb2.GetFleetReply(head_step=77, staleness_p50=2.0, latest_version=4)
    for name, done, avg, drf in (("mixed", 12, 0.0, 7200.0), ("vision", 1, 9000.0, 0.0)):
        status = fleet_pb2.ClusterStatus(
            time_seconds=24_000.0, jobs_done=done, avg_jct_seconds=avg, baseline_jct_seconds=drf
        )
        fleet.clusters.add(cluster=name, status=status)
    display.fleet(fleet, 31.0)
    display.fleet(fleet, 32.0)
    assert stream.getvalue() == (
        f"{LINE_WORDS}\n"
        "  31 s  head step 77, v4, median staleness 2 steps | mixed slot 20, 12 jobs done, average JCT – (DRF 2.00 h);"
        " vision slot 20, 1 job done, average JCT 2.50 h (DRF –)\n"
    )
