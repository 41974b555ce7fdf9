"""A launcher process of its own: `elastic-run` with a coordinator whose settings can be chosen."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from elastic_runtime.errors import ElasticError
from elastic_runtime.launcher.display import Display
from elastic_runtime.launcher.job_folder import JobLock, create
from elastic_runtime.launcher.job_spec import JobSpec, Programs
from elastic_runtime.launcher.job_status import credentials_of
from elastic_runtime.launcher.settings import LauncherSettings
from elastic_runtime.launcher.supervisor import Supervisor

_SHOWN_LINES = 1000


@dataclass(frozen=True, slots=True)
class TunedPrograms(Programs):
    """The usual processes; the coordinator gets further arguments.

    Attributes:
        coordinator_arguments: as `python -m elastic_runtime.coordinator --help` lists them.
    """

    coordinator_arguments: tuple[str, ...] = ()

    def coordinator(self, bind: str, listener: int | None, again: bool = False) -> tuple[str, ...]:
        """Command line of the coordinator."""
        return (*Programs.coordinator(self, bind, listener, again), *self.coordinator_arguments)


def main() -> int:
    """Start a job and look after it until it has ended, or a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=Path, required=True, help="folder of the job's folder")
    parser.add_argument("--name", required=True, help="of the job")
    parser.add_argument("--ps", type=int, required=True, help="parameter servers to begin with")
    parser.add_argument("--workers", type=int, required=True, help="workers to begin with")
    parser.add_argument("--coordinator", action="append", default=[], help="argument of the coordinator; repeatable")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    script = options.script.absolute()
    spec = JobSpec(
        script=script,
        arguments=tuple(options.arguments),
        python=sys.executable,
        working_folder=Path.cwd(),
        servers=options.ps,
        workers=options.workers,
        worker_threads=1,
        restarts=0,
    )
    try:
        job = create(options.jobs, options.name, script, spec.record())
        with JobLock(job.path):
            programs = TunedPrograms(spec, job, os.environ, coordinator_arguments=tuple(options.coordinator))
            display = Display("launch", sys.stdout, sys.stderr, _SHOWN_LINES)
            try:
                Supervisor(programs, credentials_of(job, spec), display, LauncherSettings()).run()
            finally:
                display.close()
    except ElasticError as error:
        print(f"benchmarks.resize.launch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
