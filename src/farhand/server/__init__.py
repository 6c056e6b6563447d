"""The HTTP server: routes, authentication, held polls, problem documents. Knows no concrete system."""
