"""Measurements of Farhand against its baselines; `python -m bench` from the repository root."""
