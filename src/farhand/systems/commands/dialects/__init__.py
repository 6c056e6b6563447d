"""The protocols in which agents collect commands, besides the server's native one."""
