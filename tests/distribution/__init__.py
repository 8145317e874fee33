"""The wheel and the source distribution: what they hold, and that the wheel works elsewhere (``make dist-check``)."""
