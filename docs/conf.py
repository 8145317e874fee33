"""Sphinx's settings for the documentation site; ``docs/site`` assembles what it builds (``make site``)."""

from __future__ import annotations

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import commitlog_store

project = "pyspark-commitlog"
author = "the authors of pyspark-commitlog"
copyright = "the authors of pyspark-commitlog, Apache License 2.0"
version = release = commitlog_store.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
# They would make a dash of the two of an option.
smartquotes = False

# The anchors of headings, as code hosts make them.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

html_theme = "pydata_sphinx_theme"
html_title = "pyspark-commitlog"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_persistent": [],
    "navbar_end": ["search-button", "theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "navigation_with_keys": False,
}
html_sidebars: dict[str, list[str]] = {"index": []}

# Cron's tables have no colours.
_PLAIN = ("crontab",)

linkcheck_timeout = 20
linkcheck_ignore = [r"https?://(127\.0\.0\.1|localhost)"]


def leave_out_aliases(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Python documents each field of a named tuple as an alias for its number."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def setup(app: Sphinx) -> None:
    """Sphinx calls this before it reads the sources."""
    app.connect("autodoc-process-docstring", leave_out_aliases)
    for name in _PLAIN:
        app.add_lexer(name, TextLexer)
