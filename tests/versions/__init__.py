"""Runs tests in each version of Spark and of Python that the project supports: ``make versions``."""
