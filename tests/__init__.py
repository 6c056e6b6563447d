"""Tests. A package, so that they can import their peers as `tests.peers`."""
