"""Keys of secrets: on disk before what they seal, gone after it, and nothing readable is left."""

import dataclasses
import json
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from farhand.agent.handler import ResultDraft
from farhand.engine.report import Report
from farhand.engine.requests import Act, Settle
from farhand.protocol.agent import BatchResult, ResultRequest, ResultsRequest
from farhand.storage.batch import Work
from farhand.storage.database import Database
from farhand.storage.key_folder import KeyFolder
from farhand.storage.sqlite import SqliteDatabase
from farhand.storage.store import Store
from farhand.storage.vault import EPOCH_MS, GRACE_MS, Epoch, Sealed, Vault
from farhand.testing.clock import FakeClock
from farhand.testing.conformance.secrets import KIND, POLICY, TTL_MS, reported
from farhand.testing.factories import ORG, Scene, granted
from tests.peers.postgres import PostgresServer
from tests.storage.conftest import connect, raw
from tests.traces import contents, files_with

JOB = b"j" * 16
SPACE = "d" * 32
TEXT = '{"qr_code":"2@abc"}'


def epochs(folder: KeyFolder) -> list[str]:
    """The keys there are, without the one for digests."""
    return [name for name in folder.names() if name != "digest"]


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "keys")


async def opened(
    folder: KeyFolder, clock: FakeClock, *, alone: bool = True, space: str = SPACE, **more: int
) -> Vault:
    vault = Vault(folder, clock, **more)
    await vault.open(space, alone=alone)
    return vault


async def destroy_all(vault: Vault) -> list[bool]:
    return [await vault.destroy(name, used) for name, used in await vault.doubtful()]


async def test_keys_are_for_their_owner_alone(folder: KeyFolder, clock: FakeClock, tmp_path: Path) -> None:
    vault = await opened(folder, clock)
    await vault.seal(JOB, TEXT, [])
    assert stat.S_IMODE((tmp_path / "keys" / SPACE).stat().st_mode) == 0o700
    files = list((tmp_path / "keys" / SPACE).iterdir())
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


async def test_what_is_sealed_opens_for_its_own_job_alone(folder: KeyFolder, clock: FakeClock) -> None:
    vault = await opened(folder, clock)
    sealed = await vault.seal(JOB, TEXT, [])
    assert TEXT.encode() not in sealed.ciphertext
    assert await vault.unseal(JOB, sealed) == TEXT
    assert await vault.unseal(b"k" * 16, sealed) is None
    torn = dataclasses.replace(sealed, ciphertext=sealed.ciphertext[:-1] + bytes([sealed.ciphertext[-1] ^ 1]))
    assert await vault.unseal(JOB, torn) is None
    for name in ("../digest", "digest", "0" * 15 + "-" + "f" * 32):
        assert await vault.unseal(JOB, Sealed(epoch=name, nonce=sealed.nonce, ciphertext=b"x")) is None
    assert "ciphertext" not in repr(sealed)


async def test_a_destroyed_key_is_overwritten_before_it_is_unlinked(
    folder: KeyFolder, clock: FakeClock, tmp_path: Path
) -> None:
    vault = await opened(folder, clock)
    held: list[Epoch] = []
    sealed = await vault.seal(JOB, TEXT, held)
    vault.let_go(held)
    with (tmp_path / "keys" / SPACE / f"{sealed.epoch}.key").open("rb") as file:
        assert await destroy_all(vault) == [True]
        assert file.read() == bytes(32)
    assert epochs(folder) == []
    assert await vault.unseal(JOB, sealed) is None


async def test_an_epoch_ends_with_its_time_and_with_its_number(folder: KeyFolder, clock: FakeClock) -> None:
    vault = await opened(folder, clock, epoch_max=3)
    names = [(await vault.seal(JOB, TEXT, [])).epoch for _ in range(7)]
    assert [names.count(name) for name in dict.fromkeys(names)] == [3, 3, 1]
    clock.advance(EPOCH_MS - 1)
    assert (await vault.seal(JOB, TEXT, [])).epoch == names[-1]
    clock.advance(1)
    assert (await vault.seal(JOB, TEXT, [])).epoch not in names
    clock.jump(-10 * EPOCH_MS)
    clock.advance(EPOCH_MS)
    assert len({(await vault.seal(JOB, TEXT, [])).epoch for _ in range(2)}) == 1


async def test_a_key_is_kept_while_a_transaction_still_seals_with_it(
    folder: KeyFolder, clock: FakeClock
) -> None:
    vault = await opened(folder, clock)
    held: list[Epoch] = []
    await vault.seal(JOB, TEXT, held)
    assert await vault.doubtful() == []
    vault.let_go(held)
    ((name, used),) = await vault.doubtful()
    await vault.seal(JOB, TEXT, held)
    assert await vault.destroy(name, used) is False
    vault.let_go(held)
    assert await vault.destroy(name, used) is False
    assert epochs(folder) == [name]


async def test_another_servers_key_is_left_alone_until_it_should_be_over(
    folder: KeyFolder, clock: FakeClock
) -> None:
    one, two = await opened(folder, clock, alone=False), await opened(folder, clock, alone=False)
    sealed = await one.seal(JOB, TEXT, [])
    assert await two.unseal(JOB, sealed) == TEXT
    assert await two.doubtful() == []
    clock.advance(EPOCH_MS + GRACE_MS - 1)
    assert await two.doubtful() == []
    clock.advance(GRACE_MS)
    assert await two.doubtful() == [(sealed.epoch, 0)]
    assert await destroy_all(two) == []
    clock.advance(GRACE_MS)
    assert await destroy_all(two) == [True]
    assert await two.unseal(JOB, sealed) is None


async def test_two_servers_make_the_same_digest_of_a_report(folder: KeyFolder, clock: FakeClock) -> None:
    one, two = await opened(folder, clock, alone=False), await opened(folder, clock, alone=False)
    assert one.keyed(b"d" * 32) == two.keyed(b"d" * 32) != b"d" * 32
    assert folder.put("digest", b"another one") != b"another one"


async def test_what_a_crash_left_half_written_goes_at_the_next_start(
    folder: KeyFolder, clock: FakeClock, tmp_path: Path
) -> None:
    vault = await opened(folder, clock)
    held: list[Epoch] = []
    sealed = await vault.seal(JOB, TEXT, held)
    vault.let_go(held)
    key = tmp_path / "keys" / SPACE / f"{sealed.epoch}.key"
    twin = tmp_path / "keys" / SPACE / f".{sealed.epoch}.0123.new"
    os.link(key, twin)
    await destroy_all(vault)
    assert not twin.exists()
    twin.write_bytes(b"half")
    await opened(folder, clock)
    assert not twin.exists()


async def test_a_key_that_no_row_was_committed_for_goes_at_the_next_start(
    tmp_path: Path, clock: FakeClock, folder: KeyFolder
) -> None:
    store = Store(SqliteDatabase(tmp_path / "x.db", exclusive=True), clock, vault=Vault(folder, clock))
    await store.open()
    await store.vault.seal(JOB, TEXT, [])
    await store.close()
    assert len(epochs(folder)) == 1
    store = Store(SqliteDatabase(tmp_path / "x.db", exclusive=True), clock, vault=Vault(folder, clock))
    await store.open()
    await store.forget_secrets()
    assert epochs(folder) == []
    await store.close()


async def test_a_secret_outlives_a_restart_and_its_key_goes_with_it(
    tmp_path: Path, clock: FakeClock, folder: KeyFolder
) -> None:
    first = Store(SqliteDatabase(tmp_path / "x.db", exclusive=True), clock, vault=Vault(folder, clock))
    await first.open()
    job = await reported(Scene(first, clock))
    wanted = await first.secret(ORG, job)
    assert wanted is not None
    await first.close()
    second = Store(SqliteDatabase(tmp_path / "x.db", exclusive=True), clock, vault=Vault(folder, clock))
    await second.open()
    await second.forget_secrets()
    assert await second.secret(ORG, job) == wanted
    clock.advance(TTL_MS)
    await second.forget_secrets()
    assert epochs(folder) == []
    await second.close()


async def test_a_settle_whose_key_cannot_be_kept_changes_nothing(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = KeyFolder(tmp_path / "keys")
    store = Store(SqliteDatabase(tmp_path / "x.db", exclusive=True), clock, vault=Vault(folder, clock))
    await store.open()
    scene = Scene(store, clock)
    lane, agent = scene.id(), scene.id()
    await scene.submit(lane, POLICY, kind=KIND)
    claimed = await scene.take(agent, lane)
    result = json.dumps({"qr_code": "2@abc"})

    def full(name: str, key: bytes) -> bytes:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder, "put", full)
        with pytest.raises(OSError, match="No space"):
            await scene.settle(claimed, result=result)
    assert await scene.state(claimed.job.id) == "claimed"
    granted(await scene.settle(claimed, result=result))
    assert await store.secret(ORG, claimed.job.id) == {"qr_code": "2@abc"}
    await store.close()


@pytest.mark.parametrize("kind", ["sqlite-alone", "postgres"])
async def test_nothing_that_was_written_holds_a_secret_and_its_ciphertext_dies_with_its_key(
    kind: str,
    new_database: Callable[[str], str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: FakeClock,
) -> None:
    database: Database = connect(new_database(kind))
    folders = [tmp_path]
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        folders.append(server.folder)
    keys = KeyFolder(tmp_path / "keys")
    store = Store(database, clock, vault=Vault(keys, clock))
    await store.open()
    scene = Scene(store, clock)
    secret, open_word = (f"2@{secrets.token_urlsafe(48)}/'é+==" for _ in range(2))
    shown = await reported(scene, {"qr_code": secret, "session": open_word}, error=f"showed {secret}")
    acknowledged = await reported(scene, {"qr_code": secret})
    if kind == "postgres":
        server.execute("CHECKPOINT")
    # The control: what is public is found, so that a secret would be.
    assert files_with(folders, open_word) != []
    assert files_with(folders, secret) == []
    assert await store.secret(ORG, shown) == {"qr_code": secret}
    (space,) = [path.name for path in (tmp_path / "keys").iterdir()]
    stolen = [(bytes(row[0]), *row[1:]) for row in await raw(database, STOLEN)]
    thief = await opened(KeyFolder(tmp_path / "keys"), clock, alone=False, space=space)
    assert await decrypted(thief, stolen) == {shown: secret, acknowledged: secret}

    granted(await store.ack(scene.order(acknowledged)))
    assert await store.secret(ORG, acknowledged) is None
    clock.advance(TTL_MS)
    await store.forget_secrets()
    assert epochs(keys) == []
    if kind == "postgres":
        server.execute("CHECKPOINT")
    assert files_with(folders, secret) == []
    assert any(stolen[0][3] in data for _, data in contents(folders)), "the log still holds the ciphertext"
    thief = await opened(KeyFolder(tmp_path / "keys"), clock, alone=False, space=space)
    assert await decrypted(thief, stolen) == {shown: None, acknowledged: None}
    await store.close()
    assert files_with(folders, secret) == []


STOLEN = (
    "SELECT j.id, s.epoch, s.nonce, s.ciphertext FROM secrets AS s INNER JOIN jobs AS j ON s.job_seq = j.seq"
)


async def decrypted(thief: Vault, stolen: list[tuple]) -> dict[bytes, str | None]:
    """What a thief of the rows reads with the keys that were there when the thief came."""
    found: dict[bytes, str | None] = {}
    for job, epoch, nonce, ciphertext in stolen:
        text = await thief.unseal(job, Sealed(epoch=epoch, nonce=nonce, ciphertext=ciphertext))
        found[job] = None if text is None else json.loads(text)["qr_code"]
    return found


async def test_databases_that_share_a_folder_leave_each_other_their_keys(
    tmp_path: Path, clock: FakeClock
) -> None:
    stores = [
        Store(
            SqliteDatabase(tmp_path / f"{name}.db", exclusive=True),
            clock,
            vault=Vault(KeyFolder(tmp_path / "keys"), clock),
        )
        for name in ("one", "two")
    ]
    for store in stores:
        await store.open()
    job = await reported(Scene(stores[0], clock))
    clock.advance(TTL_MS - 1)
    await stores[1].forget_secrets()
    await stores[0].close()
    again = Store(
        SqliteDatabase(tmp_path / "one.db", exclusive=True),
        clock,
        vault=Vault(KeyFolder(tmp_path / "keys"), clock),
    )
    await again.open()
    assert await again.secret(ORG, job) is not None
    await again.close()
    await stores[1].close()


def test_what_carries_a_secret_does_not_show_it() -> None:
    said = {"result": TEXT, "secret": TEXT, "error": TEXT}
    act = Act(org_id=1, job_id=JOB, agent_id=JOB, token=b"the-lease-token!")
    settle = Settle(act=act, report=Report(ok=True, digest=b"the-plain-digest", **said))
    request = ResultRequest(ok=True, result={"qr_code": "2@abc"}, error="2@abc")
    batch = ResultsRequest(results=[BatchResult(job_id="j", ok=True, result="2@abc")])
    draft = ResultDraft(ok=True, result={"qr_code": "2@abc"}, error="2@abc")
    shown = repr((settle, Work(verb="settle", request=settle), request, batch, draft))
    for hidden in ("2@abc", "the-lease-token", "the-plain-digest"):
        assert hidden not in shown
