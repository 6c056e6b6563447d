"""The agent's part of the fetch system."""
