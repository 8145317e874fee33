"""Runs a module that mounts file systems which no other process sees, as ``unshare --mount`` does.

python -m tests.support.own_mounts MODULE ARGUMENT...
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys

# Of the system's sched.h and mount.h.
_CLONE_NEWNS = 0x20000
_MS_REC, _MS_PRIVATE = 1 << 14, 1 << 18


def main(module: str, *arguments: str) -> None:
    system = ctypes.CDLL(None, use_errno=True)
    if system.unshare(_CLONE_NEWNS) or system.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
