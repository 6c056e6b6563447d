"""Printing: raw data and PDFs on the printers that agents see."""

from typing import Final

from farhand.model.policy import PRINT
from farhand.model.system import System

SYSTEM: Final = System(
    name="printing",
    kinds=("print.raw", "print.pdf"),
    types={
        "raw_base64": "print.raw",
        "pdf_base64": "print.pdf",
        "raw_uri": "print.raw",
        "pdf_uri": "print.pdf",
        "raw_uri_post": "print.raw",
        "pdf_uri_post": "print.pdf",
    },
    policies={"print.raw": PRINT, "print.pdf": PRINT},
    submit="farhand.systems.printing.submit:decode",
    handler="farhand.systems.printing.handler:PrintingHandler",
)
