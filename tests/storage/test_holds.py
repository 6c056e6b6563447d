"""The suite `holds`, on both databases."""

from farhand.testing.conformance.holds import *  # noqa: F403  (the suite's tests are collected here)
