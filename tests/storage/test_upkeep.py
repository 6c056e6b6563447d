"""The suite `upkeep`, on both databases."""

from farhand.testing.conformance.upkeep import *  # noqa: F403  (the suite's tests are collected here)
