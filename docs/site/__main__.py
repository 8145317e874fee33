"""Builds the site: ``python -m docs.site``, into ``build/site/html``. Warnings are errors.

``--links`` looks up the links to other hosts instead, for which it takes a network.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from typer.main import get_command

from commitlog_store.cli.app import app
from commitlog_store.cli.exit_codes import EXIT_CODES
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from docs.site.assembly import SiteError, assemble
from docs.site.generated import generated_pages

PROJECT = Path(__file__).resolve().parents[2]


def pages_from_the_code() -> dict[str, str]:
    """The pages made from the code, by their place on the site."""
    return generated_pages(get_command(app), EXIT_CODES, (RequestCode, ResponseCode))


def build(project: Path, into: Path, generated: Mapping[str, str], *, builder: str) -> int:
    """Assemble the sources of ``project``'s site, let one of Sphinx's builders build them, and return its exit code."""
    assemble(project, into / "source", generated)
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", builder]
    command += ["-c", str(PROJECT / "docs"), str(into / "source"), str(into / builder)]
    return subprocess.run(command, check=False).returncode


def main(arguments: list[str] | None = None) -> int:
    """Build the site of this checkout, and return an exit code."""
    parser = argparse.ArgumentParser(prog="python -m docs.site", description="Build the documentation site.")
    parser.add_argument("--links", action="store_true", help="look up the links to other hosts, and build nothing")
    parser.add_argument("--into", type=Path, default=PROJECT / "build" / "site", metavar="DIR", help="%(default)s")
    given = parser.parse_args(arguments)
    builder = "linkcheck" if given.links else "html"
    try:
        code = build(PROJECT, given.into, pages_from_the_code(), builder=builder)
    except SiteError as error:
        print(f"The site cannot be built: {error}.", file=sys.stderr)
        return 1
    if code == 0:
        print("All links to other hosts lead somewhere." if given.links else f"The site is in {given.into / builder}.")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
