"""Conformance suites: plain async functions over a scene, run on every database without exception."""
