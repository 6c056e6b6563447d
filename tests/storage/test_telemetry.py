"""The suite `telemetry`, on both databases."""

from farhand.testing.conformance.telemetry import *  # noqa: F403  (the suite's tests are collected here)
