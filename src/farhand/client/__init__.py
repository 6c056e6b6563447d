"""The SDK for those who submit and manage work: `Client` and `AsyncClient`."""

from farhand.client.commands import Command
from farhand.client.errors import (
    ApiError,
    CommandOpen,
    ProblemDocument,
    StillOpen,
    Unreachable,
    UnreadableReply,
)
from farhand.client.face import DEFAULT_SERVER, AsyncClient, Client
from farhand.client.requests import Page

__all__ = [
    "DEFAULT_SERVER",
    "ApiError",
    "AsyncClient",
    "Command",
    "CommandOpen",
    "Client",
    "Page",
    "ProblemDocument",
    "StillOpen",
    "Unreachable",
    "UnreadableReply",
]
