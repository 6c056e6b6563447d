"""The suite `counting`, on both databases."""

from farhand.testing.conformance.counting import *  # noqa: F403  (the suite's tests are collected here)
