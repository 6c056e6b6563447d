"""Fencing, on both databases."""

from farhand.testing.conformance.fencing import *  # noqa: F403  (the suite's tests are collected here)
