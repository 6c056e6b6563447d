"""The suite `secrets`, on both databases."""

from farhand.testing.conformance.secrets import *  # noqa: F403  (the suite's tests are collected here)
