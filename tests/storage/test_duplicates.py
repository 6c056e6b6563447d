"""The suite `duplicates`, on both databases."""

from farhand.testing.conformance.duplicates import *  # noqa: F403  (the suite's tests are collected here)
