"""The documentation site: assembles the sources that Sphinx builds, from the pages as they are (decision 0041)."""
