"""Real programs that tests talk to. Each module here holds the fixtures of one kind of peer."""

import os

import pytest


def require_peer(name: str, present: bool, hint: str) -> None:
    """Skip the test when a peer is missing; with CI set, fail instead.

    name is what the reader knows the peer by; hint says how to get it, for example a package.
    """
    if present:
        return
    message = f"{name} is not here: {hint}"
    if os.environ.get("CI"):
        pytest.fail(f"{message} (a missing peer is an error where CI is set)", pytrace=False)
    pytest.skip(message)
