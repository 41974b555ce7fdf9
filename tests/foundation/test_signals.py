import os
import signal

from foundation.program_life import SignalHandlers


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
