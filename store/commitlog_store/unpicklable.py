"""``Unpicklable``: handles that belong to one process, and say so where they are pickled or copied."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from commitlog_store.errors import InvalidValue


class Unpicklable:
    """A handle with files, locks or a connection: a copy would end what the first one still uses."""

    # What another process does in place of it, as a sentence.
    _INSTEAD: ClassVar[str]

    def __reduce__(self) -> NoReturn:
        raise InvalidValue(
            f"A {type(self).__name__} cannot be pickled or copied: it belongs to this process. {self._INSTEAD}"
        )
