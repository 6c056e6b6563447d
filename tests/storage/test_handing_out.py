"""Handing out, on both databases."""

from farhand.testing.conformance.handing_out import *  # noqa: F403  (the suite's tests are collected here)
