"""A proxy before an object store that kills its client at a chosen request, before the store has it or after it has."""

from __future__ import annotations

import subprocess
import threading

from tests.support import quick_programs
from tests.support.http_proxy import HttpProxy
from tests.support.programs import child_environment
from tests.support.s3_server import KEYS
from tests.support.waiting import WAIT_LIMIT_S


class KillingProxy(HttpProxy):
    """A proxy that kills a command at its n-th request."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._counting = threading.Lock()
        self._victim: subprocess.Popen[bytes] | None = None
        self._left, self._is_after = 0, False

    def run(self, command: list[str], at: int, *, is_after: bool) -> int:
        """The exit code of a command that is killed at its request ``at``, after the server has done what it asks."""
        with self._counting:
            self._left, self._is_after = at, is_after
            keys = {f"AWS_{name.upper()}": given for name, given in KEYS.items()}
            environment = child_environment() | keys | {"AWS_ENDPOINT_URL": self.url}
            self._victim = quick_programs.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        try:
            return self._victim.wait(WAIT_LIMIT_S)
        finally:
            self._victim.kill()
            self._victim.wait()
            self._victim = None

    def before_passing(self) -> None:
        with self._counting:
            self._left -= 1
            self._kill_if(not self._is_after)

    def after_passing(self) -> None:
        with self._counting:
            self._kill_if(self._is_after)

    def _kill_if(self, is_now: bool) -> None:
        if is_now and self._left == 0 and self._victim is not None:
            self._victim.kill()
