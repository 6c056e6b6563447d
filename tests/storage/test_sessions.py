"""The suite `sessions`, on both databases."""

from farhand.testing.conformance.sessions import *  # noqa: F403  (the suite's tests are collected here)
