"""The suite `batching`, on both databases."""

from farhand.testing.conformance.batching import *  # noqa: F403  (the suite's tests are collected here)
