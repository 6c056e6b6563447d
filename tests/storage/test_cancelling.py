"""The suite `cancelling`, on both databases."""

from farhand.testing.conformance.cancelling import *  # noqa: F403  (the suite's tests are collected here)
