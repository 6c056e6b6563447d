"""Farhand: a self-hosted control plane for machines nobody can call."""

__version__ = "0.1.0"
