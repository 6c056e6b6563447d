"""The documentation, held against the code."""
