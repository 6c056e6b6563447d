"""The server over real HTTP: every test talks to a listening socket."""
