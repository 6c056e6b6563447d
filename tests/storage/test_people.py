"""The suite `people`, on both databases."""

from farhand.testing.conformance.people import *  # noqa: F403  (the suite's tests are collected here)
