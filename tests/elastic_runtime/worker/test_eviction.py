"""A worker's SIGTERM: asked once, and the script's own ways are left alone."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from elastic_runtime.worker.membership import Eviction

DEADLINE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def handler_as_it_was() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_first_signal_asks_and_the_end_restores() -> None:
    asked = threading.Event()
    eviction = Eviction(asked.set, grace_seconds=DEADLINE_SECONDS)
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert not asked.is_set()
    os.kill(os.getpid(), signal.SIGTERM)
    assert asked.wait(DEADLINE_SECONDS)
    eviction.close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_script_with_a_handler_of_its_own_keeps_it() -> None:
    taken: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: taken.append(number))
    mine = signal.getsignal(signal.SIGTERM)
    eviction = Eviction(lambda: taken.append(0), grace_seconds=DEADLINE_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    eviction.close()
    assert taken == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is mine


def test_a_handler_that_the_script_sets_later_stays() -> None:
    eviction = Eviction(lambda: None, grace_seconds=DEADLINE_SECONDS)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    eviction.close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_in_another_thread_nothing_is_installed() -> None:
    found: list[Eviction] = []
    thread = threading.Thread(target=lambda: found.append(Eviction(lambda: None, grace_seconds=1.0)))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    found[0].close()


def test_that_a_handler_of_the_scripts_own_was_called_is_known() -> None:
    taken: list[int] = []

    def mine(number: int, frame: object) -> None:
        del frame
        taken.append(number)

    asked = threading.Event()
    eviction = Eviction(asked.set, grace_seconds=DEADLINE_SECONDS)
    signal.signal(signal.SIGTERM, mine)  # after it has joined
    eviction.poll()
    assert not eviction.is_noted
    os.kill(os.getpid(), signal.SIGTERM)
    assert taken == [signal.SIGTERM]
    assert eviction.is_noted
    assert not asked.is_set()
    eviction.close()
    assert signal.getsignal(signal.SIGTERM) is mine


def test_it_is_told_before_a_handler_of_the_scripts_own_is_called_which_may_end_the_process() -> None:
    done: list[str] = []
    signal.signal(signal.SIGTERM, lambda number, frame: done.append("handled"))
    eviction = Eviction(lambda: done.append("asked"), DEADLINE_SECONDS, lambda: done.append("told"))
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
    eviction.close()
    assert done == ["told", "handled", "handled"]
