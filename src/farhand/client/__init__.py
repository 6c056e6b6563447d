"""The SDK for those who submit and manage work: `Client` and `AsyncClient`."""

from farhand.client.errors import ApiError, ProblemDocument, StillOpen, Unreachable, UnreadableReply
from farhand.client.face import DEFAULT_SERVER, AsyncClient, Client
from farhand.client.requests import Page

__all__ = [
    "DEFAULT_SERVER",
    "ApiError",
    "AsyncClient",
    "Client",
    "Page",
    "ProblemDocument",
    "StillOpen",
    "Unreachable",
    "UnreadableReply",
]
