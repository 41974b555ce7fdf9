"""Child process of the learner, that replays versions or asks a server: started, bounded, ended at its deadline.

It ends with the learner, which ends it; where the learner was killed, the kernel does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foundation.kinship import die_with_parent

_MEGABYTE = 2**20


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Reason why a process gave no answer."""

    reason: str


def bound_this_process(limits: Mapping[str, float]) -> None:
    """Bound this process; before numpy is imported, which reads the number of its threads then.

    Args:
        limits: `nice`, `deadline_seconds` of the processor, `max_memory_mb`; `parent`, the learner's process number.
    """
    die_with_parent(int(limits["parent"]))
    os.nice(int(limits["nice"]))
    seconds = max(1, int(limits["deadline_seconds"]))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    memory = int(limits["max_memory_mb"]) * _MEGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"


async def process_output(command: Sequence[str], deadline_seconds: float, question: bytes = b"") -> bytes | NoAnswer:
    """Output of a process, which is killed at the deadline, or when this is cancelled; `question` is its input."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    except OSError as error:
        return NoAnswer(f"its process could not be started ({error.strerror})")
    try:
        async with asyncio.timeout(deadline_seconds):
            out, errors = await process.communicate(question)
    except TimeoutError:
        return NoAnswer(f"it took longer than {deadline_seconds:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return NoAnswer(_why(process.returncode or 0, errors)) if process.returncode else out


def _why(code: int, errors: bytes) -> str:
    if code < 0:
        known = {number.value: number.name for number in signal.Signals}
        return f"its process was ended by {known.get(-code, f'signal {-code}')}"
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"its process ended with exit code {code}"
