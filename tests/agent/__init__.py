"""Tests of the outbound agent."""
