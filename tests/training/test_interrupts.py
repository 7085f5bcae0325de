from __future__ import annotations

import os
import signal

import pytest

from hybridstereo.training.interrupts import TerminatedError, deferred_signals

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_becomes_a_request_and_then_its_own_error(number):
    before = signal.getsignal(number)

    def work() -> None:
        with deferred_signals() as requested:
            assert not requested.is_set()
            os.kill(os.getpid(), number)
            assert requested.is_set()
            raise KeyboardInterrupt

    with pytest.raises(TerminatedError) as caught:
        work()
    assert caught.value.signal == number
    assert signal.getsignal(number) == before


def test_ctrl_c_stays_a_keyboard_interrupt_and_the_second_comes_at_once():
    def work() -> None:
        with deferred_signals() as requested:
            os.kill(os.getpid(), signal.SIGINT)
            assert requested.is_set()
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("the second Ctrl-C was not met")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert not isinstance(caught.value, TerminatedError)


def test_ctrl_c_after_another_signal_comes_at_once():
    def work() -> None:
        with deferred_signals():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("Ctrl-C was not met")

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_session_that_is_to_be_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with deferred_signals() as requested:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not requested.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)
