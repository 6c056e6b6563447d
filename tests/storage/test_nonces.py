"""The suite `nonces`, on both databases."""

from farhand.testing.conformance.nonces import *  # noqa: F403  (the suite's tests are collected here)
