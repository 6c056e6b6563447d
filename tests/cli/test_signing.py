"""Making a signing key and insisting on it, from the command line."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run
from tests.client.conftest import HandAgent
from tests.client.server import FarhandServer

Read = Callable[..., Any]


def test_a_key_is_made_shown_and_required(
    run: Run, read: Read, shop: HandAgent, server: FarhandServer, tmp_path: Path
) -> None:
    path = tmp_path / "signing.pem"
    made = run("agent", "keygen", str(path))
    public = made.stdout.strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "PRIVATE" not in made.stdout + made.stderr
    assert f'signing_key_file = "{path}"' in made.stderr
    assert "there already" in run("agent", "keygen", str(path), code=1).stderr
    assert "give --public-key" in run("agents", "sign", shop.name, "--required", code=2).stderr
    assert "may sign" in run("agents", "sign", shop.name, "--public-key", public).stdout
    assert "has to sign" in run("agents", "sign", shop.name, "--required").stdout
    (agent,) = [a for a in read("agents", "list")["items"] if a["name"] == shop.name]
    assert (agent["signing"], agent["public_key"]) == ("required", public)
    assert "may sign" in run("agents", "sign", shop.name).stdout
    assert "no longer signs" in run("agents", "sign", shop.name, "--off").stdout
    assert "--off alone" in run("agents", "sign", shop.name, "--off", "--required", code=2).stderr
    wrong = run("agents", "sign", shop.name, "--public-key", "AAAA", code=1)
    assert "44 characters" in wrong.stderr


def test_a_key_lies_beside_the_settings_unless_told_otherwise(run: Run, tmp_path: Path) -> None:
    run("agent", "keygen", env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert (tmp_path / "farhand" / "signing.pem").exists()
