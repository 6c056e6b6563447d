"""The queue engine: pure decisions about jobs, and the use cases that carry them out."""
