"""The thread of a service keeps the pauses that its steps ask for."""

from __future__ import annotations

from commitlog_store.threads.wakeup import Wakeup
from commitlog_store.threads.worker import Worker
from tests.support.waiting import wait_for


class NotedWakes:
    """A service that notes at each step whether the pause after it would end at once."""

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self.ends_at_once: list[bool] = []

    def run_once(self) -> float:
        self.ends_at_once.append(self._wakeup.wait(0))
        return 3_600.0


def test_a_wake_that_comes_before_a_step_does_not_cut_the_pause_after_it() -> None:
    """Two puts wake dispatch: the first ends its wait, the second comes before its step, which does both."""
    wakeup = Wakeup()
    service = NotedWakes(wakeup)
    worker = Worker("NotedWakes", service, lambda _: None, wakeup)
    wakeup.set()
    worker.start()
    wait_for(lambda: service.ends_at_once)
    worker.stop()
    assert service.ends_at_once[0] is False
