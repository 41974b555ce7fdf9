"""What a training command says of how far it is where nobody sees bars."""

import io
import time

from rich.console import Console

from policy_net.laboratory.commands.training_progress import LINE_SECONDS, training_progress


def test_a_log_gets_a_line_now_and_then() -> None:
    now = 0.0
    said = io.StringIO()
    with training_progress(Console(file=said, width=20), lambda: now) as progress:
        watching = progress.add_task("watching drf", total=8, figure="")
        progress.advance(watching)
        assert said.getvalue() == ""
        now = LINE_SECONDS
        progress.advance(watching)
        progress.advance(watching)
        imitating = progress.add_task("imitating drf", total=4000, figure="")
        now = 2 * LINE_SECONDS
        progress.update(imitating, advance=1500, figure="cross-entropy 1.849 [x]")
        now = 3 * LINE_SECONDS
        endless = progress.add_task("imitation", total=None, figure="")
        progress.update(endless, figure="log-likelihood -2.100")
    assert said.getvalue().splitlines() == [
        "watching drf 2 of 8",
        "imitating drf 1500 of 4000, cross-entropy 1.849 [x]",
        "imitation, log-likelihood -2.100",
    ]


def test_a_log_hears_of_one_long_step_too() -> None:
    now = 0.0
    said = io.StringIO()
    with training_progress(Console(file=said, width=20), lambda: now, poll_seconds=0.01) as progress:
        progress.update(progress.add_task("trials", total=16, figure=""), advance=3)
        now = 75.0
        deadline = time.monotonic() + 100.0
        while not said.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert said.getvalue().splitlines() == ["trials 3 of 16, 75 s so far"]


def test_a_terminal_gets_bars_and_no_lines() -> None:
    said = io.StringIO()
    with training_progress(Console(file=said, force_terminal=True, width=80)) as progress:
        progress.update(progress.add_task("actor-critic", total=4, figure=""), completed=4, figure="reward 1")
    assert "━" in said.getvalue()
