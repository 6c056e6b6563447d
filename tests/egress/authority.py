"""A certificate authority of the tests' own."""

import ssl
import subprocess
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Authority:
    """A certificate authority of the tests' own, and servers that trust in it."""

    folder: Path
    server_names: list[str | None] = field(default_factory=list)

    @property
    def ca_file(self) -> str:
        return str(self.folder / "ca.pem")

    def issue(self, name: str, san: str) -> ssl.SSLContext:
        key, request_file, out = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={san}\n")
        _openssl(
            "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", str(key), "-out", str(request_file), "-subj", f"/CN={name}",
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", str(request_file), "-CA", self.ca_file,
            "-CAkey", str(self.folder / "ca.key"), "-CAcreateserial", "-days", "2",
            "-extfile", str(extensions), "-out", str(out),
        )  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(out, key)
        context.sni_callback = lambda _socket, name, _context: self.server_names.append(name)
        return context


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)


def make_authority(folder: Path) -> Authority:
    """An authority whose files lie in the folder."""
    _openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.pem"),
        "-subj", "/CN=Test authority", "-days", "2",
    )  # fmt: skip
    return Authority(folder)
