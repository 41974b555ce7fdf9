"""Who a parameter server says keeps it waiting: only who is silent, and only while others are heard."""

from elastic_runtime.server.protocol.pushes import Lacking
from elastic_runtime.server.protocol.synchronous import Overdue

LACKING = Lacking(7, ("worker-1",), ("worker-0",))


def test_a_silent_worker_is_named_while_another_one_asks() -> None:
    overdue = Overdue(5.0)
    overdue.on_message("worker-1", 100.0)
    assert overdue.poll(LACKING, 100.0) == ()
    overdue.on_message("worker-0", 103.0)
    assert overdue.poll(LACKING, 104.9) == ()
    assert overdue.poll(LACKING, 105.0) == ("worker-1",)
    overdue.on_message("worker-1", 106.0)
    assert overdue.poll(LACKING, 107.0) == ()
    assert overdue.poll(LACKING, 111.0) == ("worker-1",)
    assert overdue.poll(None, 112.0) == ()


def test_a_server_that_hears_nobody_names_nobody() -> None:
    overdue = Overdue(5.0)
    overdue.on_message("worker-0", 100.0)
    overdue.poll(LACKING, 100.0)
    assert overdue.poll(LACKING, 109.0) == ("worker-1",)
    assert overdue.poll(LACKING, 110.0) == ()


def test_each_step_has_its_own_time() -> None:
    overdue = Overdue(5.0)
    overdue.poll(LACKING, 100.0)
    overdue.on_message("worker-0", 106.0)
    assert overdue.poll(Lacking(8, ("worker-1",), ("worker-0",)), 106.0) == ()
    assert overdue.poll(Lacking(8, ("worker-1",), ("worker-0",)), 111.0) == ("worker-1",)
