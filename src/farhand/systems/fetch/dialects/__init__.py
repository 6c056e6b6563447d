"""The protocols in which devices fetch, besides the server's native one."""
