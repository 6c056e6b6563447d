"""The SDK for those who submit and manage work: `Client` and `AsyncClient`."""

from farhand.client.commands import Command
from farhand.client.errors import (
    ApiError,
    CommandOpen,
    FetchFailed,
    ProblemDocument,
    StillOpen,
    Unreachable,
    UnreadableReply,
)
from farhand.client.face import DEFAULT_SERVER, AsyncClient, Client
from farhand.client.farm import put_file
from farhand.client.fetch import Fetched, FetchOptions
from farhand.client.plan import Sink
from farhand.client.requests import Page

__all__ = [
    "DEFAULT_SERVER",
    "ApiError",
    "AsyncClient",
    "Command",
    "CommandOpen",
    "Client",
    "FetchFailed",
    "FetchOptions",
    "Fetched",
    "Page",
    "ProblemDocument",
    "Sink",
    "StillOpen",
    "Unreachable",
    "UnreadableReply",
    "put_file",
]
