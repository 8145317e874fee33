"""Draws docs/pictures/demo.svg, what ``make demo`` prints: ``python -m docs.site.demo_picture`` (needs Java)."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console

from examples import demo
from tests.support.local_spark import PROJECT, make_java_available

PICTURE = PROJECT / "docs" / "pictures" / "demo.svg"
_WIDTH_CHARACTERS = 96
# Rich names fonts of another host, and its own id of the picture differs from run to run.
_FONTS = re.compile(r"\s*@font-face \{[^}]*\}")


def picture_of(console: Console) -> str:
    """What a recording console has printed, as SVG that loads nothing from another host."""
    drawn = console.export_svg(title="make demo", unique_id="demo")
    return "\n".join(line.rstrip() for line in _FONTS.sub("", drawn).splitlines()) + "\n"


def main(picture: Path = PICTURE) -> int:
    """Run the demonstration, draw what it prints, and return its exit code."""
    make_java_available()
    demo.console = Console(record=True, width=_WIDTH_CHARACTERS, highlight=False)
    code = demo.main()
    if code == 0:
        picture.write_text(picture_of(demo.console), encoding="utf-8")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
