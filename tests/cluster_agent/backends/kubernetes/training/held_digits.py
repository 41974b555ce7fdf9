"""The digits example, held back until a file is there: `python held_digits.py FILE [the example's options]`.

A job that a test resizes, evicts or kills must still train while the test does so, however slow the machine; and be
done soon afterwards, however fast. So each step waits a moment, until the test lets it go.
"""

from __future__ import annotations

import itertools
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import elastic_runtime

SCRIPT = Path(__file__).resolve()
EXAMPLE = SCRIPT.parents[5] / "docs" / "examples" / "digits" / "train.py"
SAMPLES = 1437
EPOCHS = 15
"""With 23 steps an epoch it holds for eight minutes, and trains for some three seconds once it may."""
HOLD_SECONDS, LONG_HOLD_SECONDS = 0.3, 2.0
SHORT_HOLDS = 100
"""Of a process: half a minute in which it soon goes on from step to step; who needs longer is a slow machine."""


def held_command(let_go: Path) -> list[str]:
    """The words that start it; `let_go` is the file that ends its waiting."""
    return [sys.executable, str(SCRIPT), str(let_go), f"--epochs={EPOCHS}"]


def main() -> None:
    """Entry point."""
    let_go = Path(sys.argv.pop(1))
    join = elastic_runtime.join

    def held_join(*given: Any, **named: Any) -> Any:
        job = join(*given, **named)
        step, holds = job.step, itertools.count()

        def held_step(*loss: Any) -> None:
            step(*loss)
            if not let_go.exists():
                time.sleep(HOLD_SECONDS if next(holds) < SHORT_HOLDS else LONG_HOLD_SECONDS)

        job.step = held_step
        return job

    elastic_runtime.join = held_join
    sys.argv[0] = str(EXAMPLE)
    runpy.run_path(str(EXAMPLE), run_name="__main__")


if __name__ == "__main__":
    main()
