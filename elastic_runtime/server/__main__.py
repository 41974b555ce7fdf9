"""`python -m elastic_runtime.server`: one parameter server, told where its job is by arguments and environment."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Sequence

import torch

from elastic_runtime.errors import ElasticError
from elastic_runtime.member.environment import GRACE, TASK, MemberEnvironment
from elastic_runtime.server.parameter_server import ServerProcess
from elastic_runtime.telemetry import LEVEL_VARIABLE, configure_logging
from foundation.program_life import end
from foundation.text import LONGEST_ERROR_CHARACTERS, plain_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m elastic_runtime.server", description=__doc__)
    parser.add_argument("--task", help=f"this server's name, such as ps-0; instead of {TASK}")
    parser.add_argument("--grace", help=f"seconds to go on after SIGTERM until let go; instead of {GRACE}")
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    options = parser.parse_args(arguments)
    configure_logging(os.environ.get(LEVEL_VARIABLE, "info"))
    torch.set_num_threads(1)  # applying a block is bound by memory; the cores are the workers'
    try:
        given = {TASK: options.task, GRACE: options.grace}
        environment = MemberEnvironment.read({**os.environ, **{name: value for name, value in given.items() if value}})
        server = ServerProcess(environment)
        signal.signal(signal.SIGTERM, lambda *_: server.drain())
        signal.signal(signal.SIGINT, lambda *_: server.stop())
        gc.freeze()
        server.run()
    except ElasticError as error:
        if options.debug:
            raise
        print(f"elastic server: {plain_line(str(error), LONGEST_ERROR_CHARACTERS)}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    end(main())
