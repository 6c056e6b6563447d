"""The suite `hedging`, on both databases."""

from farhand.testing.conformance.hedging import *  # noqa: F403  (the suite's tests are collected here)
