"""Hosts on one machine: network namespaces, joined by a bridge, each with a mount namespace that hides a directory.

All of them are within namespaces of the program that makes them, which ``OWN_MACHINE`` starts: they are gone when it
ends, however it ends. So are their processes. Where namespaces cannot be made, ``Addresses`` takes their place.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.programs import OWN_MOUNTS

# The prefix of a program with network, mounts and processes of its own; the last ones are killed with it.
OWN_MACHINE = (*OWN_MOUNTS, "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_NETWORK = "10.83.0."
_BRIDGE = "switch"
_TRIAL = f"mount -t tmpfs tmpfs /run && ip netns add x && ip link add {_BRIDGE} type bridge"


def why_no_hosts() -> str:
    """Why hosts cannot be made here; empty if they can."""
    for tool in ("unshare", "ip", "mount"):
        if shutil.which(tool) is None:
            return f"hosts are made with the command {tool}"
    trial = [*OWN_MACHINE, "sh", "-c", _TRIAL]
    done = subprocess.run(trial, check=False, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"namespaces cannot be made here: {done.stderr.strip()}"


class Hosts:
    """``add`` makes a host; ``within`` has what goes before a command that runs there. For a program of OWN_MACHINE."""

    def __init__(self, hidden: Path) -> None:
        """``hidden`` is an empty directory for all hosts but those that ``add`` lets see it."""
        self._hidden = hidden
        self._names: dict[str, str] = {}
        self._sees: set[str] = set()
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "link", "set", _BRIDGE, "up")

    def add(self, name: str, *, sees_it: bool = False) -> str:
        """The address of a new host."""
        number = len(self._names) + 1
        address, port = f"{_NETWORK}{number}", f"port{number}"
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", port, "master", _BRIDGE, "up")
        for command in (("addr", "add", f"{address}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            _run("ip", "-n", name, *command)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        self._names[address] = name
        if sees_it:
            self._sees.add(address)
        return address

    def within(self, address: str) -> Sequence[str]:
        """The prefix of a command on a host. The process that it starts is the command itself."""
        prefix = ["ip", "netns", "exec", self._names[address]]
        if address in self._sees:
            return prefix
        hide = f'mount -t tmpfs -o ro tmpfs "{self._hidden}" && exec "$@"'
        return [*prefix, *OWN_MOUNTS, "sh", "-c", hide, "sh"]

    def power_off(self, address: str) -> None:
        """Kill all processes of a host at once, and take its cable out."""
        name = self._names[address]
        _run("ip", "-n", name, "link", "set", "eth0", "down")
        pids = subprocess.run(["ip", "netns", "pids", name], check=True, capture_output=True, text=True).stdout
        for pid in map(int, pids.split()):
            os.kill(pid, signal.SIGKILL)


class Addresses:
    """Addresses of this machine, with what ``Hosts`` has but ``power_off``. No directory is hidden."""

    def __init__(self) -> None:
        self._count = 1

    def add(self, name: str, *, sees_it: bool = False) -> str:
        self._count += 1
        return f"127.0.0.{self._count}"

    def within(self, address: str) -> Sequence[str]:
        return ()


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stderr}")
