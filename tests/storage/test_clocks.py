"""Every clock, on both databases."""

from farhand.testing.conformance.clocks import *  # noqa: F403  (the suite's tests are collected here)
