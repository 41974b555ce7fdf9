"""Logging of a job's processes: lines on stderr, for people on a terminal, JSON otherwise.

A worker is the user's script: stdout is the script's, and logging that the script has set up stays as it is.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog

from foundation.lossy_stream import lossy

LEVEL_VARIABLE = "ELASTIC_LOG_LEVEL"
"""debug, info, warning or error; what a process of ours logs, unless it is told otherwise."""
_LEVELS = ("debug", "info", "warning", "error")


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Set up the logging of a process.

    Args:
        level: the least that is logged; a word that is none stands for info.
    """
    target = sys.stderr if stream is None else stream
    last: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if target.isatty()
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    chosen = level.lower() if level.lower() in _LEVELS else "info"
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, chosen.upper())),
        logger_factory=structlog.PrintLoggerFactory(lossy(target)),
        cache_logger_on_first_use=False,
    )


def configure_script_logging(level: str) -> None:
    """Set up the logging of a user's script, unless the script has done so itself."""
    if not structlog.is_configured():
        configure_logging(level)
