import os
import signal
import threading
import time

import pytest

from foundation.clocks import AwakeClock
from foundation.program_life import SignalHandlers
from foundation.signal_event import SignalEvent


def test_signals_are_taken_while_the_context_lasts_and_put_back() -> None:
    taken: list[int] = []
    before = signal.getsignal(signal.SIGUSR1)
    with SignalHandlers((signal.SIGUSR1, signal.SIGUSR2), taken.append) as handlers:
        handlers.install()  # a second time changes nothing
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
    assert sorted(taken) == sorted([signal.SIGUSR1, signal.SIGUSR2])
    assert signal.getsignal(signal.SIGUSR1) == before
    handlers.restore()
    assert signal.getsignal(signal.SIGUSR1) == before


def test_what_whoever_started_the_program_ignores_stays_ignored() -> None:
    taken: list[int] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalHandlers((signal.SIGHUP,), taken.append):
            os.kill(os.getpid(), signal.SIGHUP)
        with SignalHandlers((signal.SIGHUP,), taken.append, unless_ignored=()):
            os.kill(os.getpid(), signal.SIGHUP)
        assert taken == [signal.SIGHUP]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.timeout(60)
def test_a_handler_may_set_an_event_and_look_at_a_clock_whatever_it_came_upon() -> None:
    event, clock, handled = SignalEvent(), AwakeClock(1.0), 0
    waited = SignalEvent()

    def take(number: int) -> None:
        nonlocal handled
        del number
        event.set()
        clock()
        handled += 1

    def interrupt() -> None:
        while not waited.wait(0.0):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            time.sleep(1e-5)

    with SignalHandlers((signal.SIGUSR1,), take):
        thread = threading.Thread(target=interrupt)
        thread.start()
        seen = [clock()]
        while handled < 300:  # with locks that their own thread waits for, it never ended
            event.wait(0.0)
            event.set()
            seen.append(clock())
        waited.set()
        thread.join()
    assert seen == sorted(seen)


def test_an_event_is_waited_for_by_several_and_no_longer_than_told() -> None:
    event = SignalEvent()
    assert not event.wait(-1.0)
    assert not event.wait(0.01)
    threads = [threading.Thread(target=event.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    event.set()
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive()
    assert event.is_set()
    assert event.wait()
    with pytest.raises(NotImplementedError):
        event.clear()
