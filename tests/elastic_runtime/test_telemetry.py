"""A job's processes log to stderr, and leave a script's own logging alone."""

import io
import json

import pytest
import structlog

from elastic_runtime.telemetry import configure_logging, configure_script_logging


def test_lines_are_json_from_the_level_on() -> None:
    stream = io.StringIO()
    configure_logging("warning", stream)
    log = structlog.get_logger()
    log.info("left_out")
    log.warning("task-lost", task="ps-0")
    (line,) = stream.getvalue().splitlines()
    assert {"event": "task-lost", "task": "ps-0", "level": "warning"}.items() <= json.loads(line).items()


def test_a_level_that_is_none_is_info() -> None:
    stream = io.StringIO()
    configure_logging("loud", stream)
    structlog.get_logger().debug("left_out")
    structlog.get_logger().info("kept")
    assert len(stream.getvalue().splitlines()) == 1


def test_a_scripts_stdout_is_its_own_and_so_is_its_logging(capsys: pytest.CaptureFixture[str]) -> None:
    configure_script_logging("warning")
    structlog.get_logger().warning("message-refused")
    said = capsys.readouterr()
    assert said.out == ""
    assert "message-refused" in said.err
    stream = io.StringIO()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(stream))
    configure_script_logging("warning")
    structlog.get_logger().warning("again")
    assert "again" in stream.getvalue()
