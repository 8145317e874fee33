"""The documentation site: the assembly of its sources, the pages from the code, and Sphinx's part."""
