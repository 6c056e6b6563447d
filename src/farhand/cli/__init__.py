"""The command line: the place where everything is put together."""
