"""The wire: paths, messages, error documents, version. Shared by server, agent and client."""

from typing import Final

PROTOCOL_HEADER: Final = "Farhand-Protocol"
PROTOCOL: Final = 1
PROTOCOL_OLDEST: Final = 1

DIRECTIVES: Final = ("continue", "cancel", "abort", "drain")
"""What every reply to an agent can carry: go on; cancel this job; stop it; take no more work."""

PRINT_TYPES: Final = {
    "raw_base64": ("print.raw", "raw"),
    "pdf_base64": ("print.pdf", "pdf"),
    "raw_uri": ("print.raw", "raw"),
    "pdf_uri": ("print.pdf", "pdf"),
    "raw_uri_post": ("print.raw", "raw"),
    "pdf_uri_post": ("print.pdf", "pdf"),
}
"""A printing client's `type` to the job's kind and mode."""
