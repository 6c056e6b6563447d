"""What every test may use: the fixtures of every module in tests/peers."""

import os
from pathlib import Path

import pytest

pytest_plugins = [
    f"tests.peers.{module.stem}"
    for module in sorted((Path(__file__).parent / "peers").glob("*.py"))
    if not module.stem.startswith(("_", "test_"))
]


@pytest.fixture(scope="session")
def soak_length() -> str:
    """`short` or `long`: how long a drill marked `soak` goes on."""
    return os.environ.get("FARHAND_SOAK", "short")
