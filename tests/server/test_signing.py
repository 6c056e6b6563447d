"""Signed requests: who may speak for an agent, and what a copied, old or changed request is worth."""

import base64
import dataclasses
import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from farhand.agent.signing import Signer
from farhand.model.clock import Clock
from farhand.protocol.signing import NEW_AGENT, content_digest, digest_of, parse_key, signed_text
from tests.server.serving import FakeClock, Machine, Reply, Server, serving

NOBODY = str(uuid.UUID(int=7))
CLAIM = {"poll_id": "p"}


@dataclass(slots=True, kw_only=True)
class SigningMachine:
    """A registered agent that signs; `change` alters headers after they were signed."""

    server: Server
    machine: Machine
    signer: Signer

    def headers(self, method: str, target: str, body: bytes = b"") -> dict[str, str]:
        """The headers of one request, signed now."""
        return self.signer.headers(self.machine.id, method, target, body)

    def call(
        self, method: str, target: str, message: Any = None, *, sent: bytes | None = None, **change: Any
    ) -> Reply:
        """One signed request; `sent` is what goes out instead of the body that was signed."""
        body = b"" if message is None else json.dumps(message).encode()
        headers = {**self.headers(method, target, body), **change.pop("headers", {})}
        return self.server.call(
            change.get("sent_as", method),
            change.get("sent_to", target),
            key=None,
            body=(sent if sent is not None else body) or None,
            headers={name: value for name, value in headers.items() if value is not None},
        )

    def claim(self, **more: Any) -> Reply:
        """A signed claim."""
        return self.call("POST", "/agent/claim", {"poll_id": os.urandom(6).hex(), **more})

    def require(self, *, required: bool = True) -> Any:
        """The operator insists on signatures."""
        message = {"public_key": self.signer.public_key, "required": required}
        return self.server.call("PUT", f"/agents/{self.machine.id}/signing", json_body=message).ok()


def signer_of(clock: Clock) -> Signer:
    """A signer with a key of its own."""
    return Signer(Ed25519PrivateKey.generate(), clock)


def enrol(server: Server, signer: Signer, name: str, key: str | None = None, **more: Any) -> Reply:
    """A signed registration."""
    message = {"name": name, "printers": [{"name": "p"}], "public_key": signer.public_key, **more}
    body = json.dumps(message).encode()
    headers = signer.headers(NEW_AGENT, "POST", "/agent/register", body)
    key = key or f"key-of-{name}-0123456789"
    return server.call("POST", "/agent/register", key=key, body=body, headers=headers)


@pytest.fixture
def signing(shared: Server) -> SigningMachine:
    return make(shared, shared.context.clock)


def make(server: Server, clock: Clock) -> SigningMachine:
    """A machine that registered with a signing key."""
    name, signer = f"signs-{uuid.uuid4()}", signer_of(clock)
    key = f"key-of-{name}"
    made = enrol(server, signer, name, key).ok()
    machine = Machine(server=server, name=name, key=key, id=made["computer_id"], printers=made["printer_ids"])
    return SigningMachine(server=server, machine=machine, signer=signer)


def test_a_signed_agent_works_from_claim_to_result_on_both_databases(server: Server) -> None:
    agent = make(server, server.context.clock)
    agent.require()
    made = server.submit(agent.machine.printers[0], b"^XA" + bytes(range(256)) * 200)
    (job,) = agent.claim(accept=True).ok()["jobs"]
    assert job["job_id"] == made["id"]
    path = f"/agent/jobs/{job['job_id']}"
    lease = {"lease_token": job["lease_token"]}
    agent.call("POST", f"{path}/start", lease).ok()
    payload = agent.call("GET", f"{path}/payload", headers={"Farhand-Lease": job["lease_token"]})
    assert payload.body.startswith(b"^XA")
    agent.call("POST", f"{path}/result", {"ok": True, **lease}).ok()
    assert server.job(job["job_id"])["state"] == "done"
    headers = agent.headers("POST", "/agent/claim", b'{"poll_id":"x"}')

    def again() -> Reply:
        return server.call("POST", "/agent/claim", key=None, body=b'{"poll_id":"x"}', headers=headers)

    again().ok()
    again().problem(401, "replayed")


def test_bearer_keys_work_until_signing_is_required(signing: SigningMachine) -> None:
    machine = signing.machine
    assert machine.poll().status == 204
    assert signing.claim().status == 200
    assert signing.require()["signing"] == "required"
    refused = machine.poll().problem(401, "signature-required")
    assert "signing_key_file" in refused["detail"]
    machine.server.register(machine.name, key=machine.key).problem(401, "signature-required")
    assert signing.claim().status == 200
    assert signing.require(required=False)["signing"] == "optional"
    assert machine.poll().status == 204
    signed_and_more = signing.call(
        "POST", "/agent/claim", CLAIM, headers={"Authorization": "Bearer a-key-that-nobody-knows"}
    )
    assert signed_and_more.status == 200


def test_a_bearer_key_beside_a_bad_signature_does_not_help(signing: SigningMachine) -> None:
    headers = signing.headers("POST", "/agent/claim", b"{}")
    bearer = {"Authorization": f"Bearer {signing.machine.key}"}
    reply = signing.server.call(
        "POST", "/agent/claim", key=None, json_body=CLAIM, headers={**headers, **bearer}
    )
    reply.problem(401, "bad-signature")


def test_a_request_made_twice_is_a_replay(signing: SigningMachine) -> None:
    body = json.dumps(CLAIM).encode()
    headers = signing.headers("POST", "/agent/claim", body)

    def send() -> Reply:
        return signing.server.call("POST", "/agent/claim", key=None, body=body, headers=headers)

    send().ok()
    assert send().problem(401, "replayed")["retryable"] is True
    send().problem(401, "replayed")


def test_of_a_request_sent_many_times_at_once_one_is_taken(signing: SigningMachine) -> None:
    for _ in range(5):
        body = json.dumps(CLAIM).encode()
        headers = signing.headers("POST", "/agent/claim", body)
        sent = [
            signing.server.later(
                signing.server.call, "POST", "/agent/claim", key=None, body=body, headers=headers
            )
            for _ in range(8)
        ]
        statuses = sorted(reply.result(timeout=30).status for reply in sent)
        assert statuses == [200] + [401] * 7


def test_anothers_nonce_is_no_replay(shared: Server) -> None:
    one, two = make(shared, shared.context.clock), make(shared, shared.context.clock)
    nonce = "n" * 20
    for agent in (one, two):
        body = json.dumps(CLAIM).encode()
        digest = content_digest(body)
        stamp = str(shared.context.clock.now_ms())
        text = signed_text(
            agent=agent.machine.id.encode(), method=b"POST", target=b"/agent/claim",
            timestamp=stamp.encode(), nonce=nonce.encode(), digest=digest.encode(),
        )  # fmt: skip
        headers = {
            "Farhand-Agent": agent.machine.id, "Farhand-Timestamp": stamp, "Farhand-Nonce": nonce,
            "Content-Digest": digest,
            "Farhand-Signature": base64.b64encode(agent.signer._key.sign(text)).decode(),
        }  # fmt: skip
        shared.call("POST", "/agent/claim", key=None, body=body, headers=headers).ok()


CHANGES: dict[str, Callable[[SigningMachine], Reply]] = {
    "body": lambda a: a.call("POST", "/agent/claim", CLAIM, sent=b'{"poll_id": "q"}'),
    "a longer body": lambda a: a.call("POST", "/agent/claim", CLAIM, sent=b'{"poll_id": "p"} '),
    "no body": lambda a: a.call("POST", "/agent/claim", CLAIM, sent=b""),
    "path": lambda a: a.call("POST", "/agent/claim", CLAIM, sent_to="/agent/results"),
    "query": lambda a: a.call("GET", "/agent/jobs", sent_to="/agent/jobs?x=1"),
    "method": lambda a: a.call("POST", "/agent/jobs", sent_as="GET"),
    "timestamp": lambda a: a.call(
        "POST", "/agent/claim", CLAIM,
        headers={"Farhand-Timestamp": str(a.server.context.clock.now_ms() - 1_000)},
    ),
    "nonce": lambda a: a.call("POST", "/agent/claim", CLAIM, headers={"Farhand-Nonce": "m" * 24}),
    "digest": lambda a: a.call(
        "POST", "/agent/claim", CLAIM, headers={"Content-Digest": content_digest(b"{}")}
    ),
    "signature": lambda a: a.call(
        "POST", "/agent/claim", CLAIM, headers={"Farhand-Signature": base64.b64encode(bytes(64)).decode()}
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_changed_on_the_way_is_refused(signing: SigningMachine, what: str) -> None:
    CHANGES[what](signing).problem(401, "bad-signature")
    assert signing.claim().status == 200


def test_a_digest_of_another_body_signed_by_the_agent_itself_is_refused(signing: SigningMachine) -> None:
    headers = signing.headers("GET", "/agent/jobs", b"not what a GET has")
    refused = signing.server.call("GET", "/agent/jobs", key=None, headers=headers)
    refused.problem(401, "bad-signature")


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Farhand-Agent", None),
        ("Farhand-Timestamp", None),
        ("Farhand-Timestamp", "soon"),
        ("Farhand-Timestamp", "-1"),
        ("Farhand-Timestamp", "9" * 40),
        ("Farhand-Nonce", None),
        ("Farhand-Nonce", "short"),
        ("Farhand-Nonce", "x" * 65),
        ("Farhand-Nonce", "with a space in it"),
        ("Content-Digest", None),
        ("Content-Digest", "sha-512=:AAAA:"),
        ("Content-Digest", "sha-256=:AAAA:"),
        ("Farhand-Signature", ""),
        ("Farhand-Signature", "not base64!"),
        ("Farhand-Signature", "AAAA"),
    ],
)
def test_a_malformed_signature_is_told_what_is_wrong(
    signing: SigningMachine, header: str, value: str | None
) -> None:
    reply = signing.call("POST", "/agent/claim", CLAIM, headers={header: value})
    assert header in reply.problem(401, "bad-signature")["detail"]


def test_an_unknown_signer_is_told_so(signing: SigningMachine, shared: Server) -> None:
    for agent in (NOBODY, "no-id", shared.machine().id):
        headers = signing.signer.headers(agent, "GET", "/agent/jobs", b"")
        shared.call("GET", "/agent/jobs", key=None, headers=headers).problem(401, "unknown-signer")


def test_another_agents_key_opens_nothing(shared: Server) -> None:
    one, two = make(shared, shared.context.clock), make(shared, shared.context.clock)
    headers = two.signer.headers(one.machine.id, "GET", "/agent/jobs", b"")
    shared.call("GET", "/agent/jobs", key=None, headers=headers).problem(401, "bad-signature")


def test_a_signed_agent_is_held_to_its_grants_and_its_state(shared: Server) -> None:
    agent = make(shared, shared.context.clock)
    one = f"/agents/{agent.machine.id}"
    agent.call("GET", "/jobs").problem(403, "forbidden")
    shared.call("PUT", f"{one}/grants", json_body={"grants": []}).ok()
    agent.claim().problem(403, "forbidden")
    shared.call("POST", f"{one}/revoke").ok()
    agent.claim().problem(403, "agent-revoked")


def test_a_held_poll_is_signed_once_though_the_registry_changes_meanwhile(small: Server) -> None:
    agent = make(small, small.context.clock)
    held = small.later(agent.call, "POST", "/agent/claim", {"poll_id": "held", "wait_ms": 20_000})
    small.await_held(1)
    small.new_key("jobs.read")
    small.machine()
    made = small.submit(agent.machine.printers[0])
    (job,) = held.result(timeout=30).ok()["jobs"]
    assert job["job_id"] == made["id"]


def test_a_request_of_long_ago_or_far_ahead_is_refused(timed: Server, clock: FakeClock) -> None:
    agent = make(timed, clock)

    def sent_after(ms: int) -> Reply:
        headers = agent.headers("GET", "/agent/jobs")
        clock.advance(ms)
        headers["Prefer"] = "wait=0"
        return timed.call("GET", "/agent/jobs", key=None, headers=headers)

    assert sent_after(300_000).status == 204
    refused = sent_after(300_001).problem(401, "clock-skew")
    assert refused["server_time_ms"] == clock.now_ms()
    assert "behind" in refused["detail"]
    assert sent_after(-300_000).status == 204
    assert "ahead of" in sent_after(-300_001).problem(401, "clock-skew")["detail"]


def test_a_nonce_is_remembered_as_long_as_its_request_is_valid(timed: Server, clock: FakeClock) -> None:
    agent = make(timed, clock)
    clock.advance(300_000)
    headers = {**agent.headers("GET", "/agent/jobs"), "Prefer": "wait=0"}
    clock.advance(-300_000)
    assert timed.call("GET", "/agent/jobs", key=None, headers=headers).status == 204
    for _ in range(2):
        clock.advance(300_000)
        timed.do(timed.context.store.forget_nonces(600_000))
        timed.call("GET", "/agent/jobs", key=None, headers=headers).problem(401, "replayed")
    clock.advance(1)
    timed.call("GET", "/agent/jobs", key=None, headers=headers).problem(401, "clock-skew")
    assert timed.do(timed.context.store.forget_nonces(600_000)) > 0
    assert timed.do(timed.context.store.forget_nonces(600_000)) == 0


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Server]:
    """A server where unknown agents wait for approval."""
    with serving(tmp_path / "data", open_enrolment=False) as running:
        yield running


def test_a_pending_agent_is_bound_to_its_key_by_its_approval(closed: Server) -> None:
    clock = closed.context.clock
    signer, thief = signer_of(clock), signer_of(clock)
    waiting = enrol(closed, signer, "lab").problem(403, "agent-pending")
    enrol(closed, thief, "lab").problem(401, "unknown-signer")
    assert enrol(closed, signer, "lab").problem(403, "agent-pending")["user_code"] == waiting["user_code"]
    (entry,) = closed.call("GET", "/agents/pending").ok()["items"]
    approved = closed.call(
        "POST", f"/agents/{entry['id']}/approve", json_body={"code": waiting["user_code"]}
    ).ok()
    assert (approved["signing"], approved["public_key"]) == ("optional", signer.public_key)
    made = enrol(closed, signer, "lab").ok()
    headers = {**signer.headers(made["computer_id"], "GET", "/agent/jobs", b""), "Prefer": "wait=0"}
    assert closed.call("GET", "/agent/jobs", key=None, headers=headers).status == 204


def test_a_registration_made_twice_is_a_replay(shared: Server) -> None:
    signer = signer_of(shared.context.clock)
    name = f"twice-{uuid.uuid4()}"
    body = json.dumps({"name": name, "public_key": signer.public_key}).encode()
    headers = signer.headers(NEW_AGENT, "POST", "/agent/register", body)

    def send(body: bytes = body) -> Reply:
        return shared.call("POST", "/agent/register", key=f"key-of-{name}", body=body, headers=headers)

    send(body + b" ").problem(401, "bad-signature")
    send().ok()
    send().problem(401, "replayed")


def test_a_registration_proves_the_key_that_it_presents(shared: Server) -> None:
    clock = shared.context.clock
    signer, other = signer_of(clock), signer_of(clock)
    name = f"proves-{uuid.uuid4()}"
    enrol(shared, signer, name, public_key=other.public_key).problem(401, "bad-signature")
    enrol(shared, signer, name, public_key=None).problem(401, "bad-signature")
    enrol(shared, signer, name, public_key="AAAA").problem(422, "bad-field")
    shared.register(name, key=f"key-of-{name}", public_key=other.public_key).problem(401, "bad-signature")
    named = json.dumps({"name": name, "public_key": signer.public_key}).encode()
    headers = signer.headers(NOBODY, "POST", "/agent/register", named)
    reply = shared.call("POST", "/agent/register", key=f"key-of-{name}", body=named, headers=headers)
    reply.problem(401, "bad-signature")
    assert enrol(shared, signer, name).status == 200


def test_a_bound_key_changes_by_the_operator_alone(shared: Server) -> None:
    agent, other = make(shared, shared.context.clock), signer_of(shared.context.clock)
    machine = agent.machine
    enrol(shared, other, machine.name, machine.key).problem(401, "unknown-signer")
    message = {"public_key": other.public_key, "required": True}
    shared.call("PUT", f"/agents/{machine.id}/signing", json_body=message).ok()
    agent.claim().problem(401, "bad-signature")
    enrol(shared, other, machine.name, machine.key).ok()
    assert dataclasses.replace(agent, signer=other).claim().status == 200
    entries = [e for e in shared.call("GET", "/audit").ok()["items"] if e["subject"] == machine.id]
    assert [(e["action"], e["data"]) for e in entries] == [("agents.signing", "required")]


def test_a_key_presented_later_is_audited_as_the_agents_own_doing(shared: Server) -> None:
    machine, signer = shared.machine(), signer_of(shared.context.clock)
    enrol(shared, signer, machine.name, machine.key).ok()
    (entry,) = [e for e in shared.call("GET", "/audit").ok()["items"] if e["subject"] == machine.id]
    assert (entry["actor"], entry["data"]) == (f"agent:{machine.id}", "presented")


def test_the_operator_cannot_require_what_is_impossible(shared: Server) -> None:
    path = f"/agents/{shared.machine().id}/signing"
    for message, field in (
        ({"public_key": None, "required": True}, "required"),
        ({"public_key": "AAAA"}, "public_key"),
        ({"public_key": base64.b64encode(bytes(31)).decode()}, "public_key"),
        ({}, "public_key"),
    ):
        refused = shared.call("PUT", path, json_body=message).problem(422, "bad-field")
        assert refused["field"] == field
    cleared = shared.call("PUT", path, json_body={"public_key": None}).ok()
    assert (cleared["signing"], cleared["public_key"]) == ("off", None)


def test_a_key_that_is_no_point_on_the_curve_opens_nothing(shared: Server) -> None:
    agent = make(shared, shared.context.clock)
    message = {"public_key": base64.b64encode(b"\xff" * 32).decode()}
    shared.call("PUT", f"/agents/{agent.machine.id}/signing", json_body=message).ok()
    agent.claim().problem(401, "bad-signature")


def test_many_unknown_signers_make_an_address_wait_but_not_those_who_are_known(small: Server) -> None:
    agent = make(small, small.context.clock)
    agent.claim().ok()
    for _ in range(120):
        headers = agent.signer.headers(NOBODY, "GET", "/agent/jobs", b"")
        small.call("GET", "/agent/jobs", key=None, headers=headers).problem(401, "unknown-signer")
    headers = agent.signer.headers(NOBODY, "GET", "/agent/jobs", b"")
    small.call("GET", "/agent/jobs", key=None, headers=headers).problem(429, "too-many-keys")
    assert agent.claim().status == 200


def test_what_a_signature_covers_is_what_the_documentation_says() -> None:
    assert content_digest(b"") == "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"
    assert digest_of(b"sha-512=:QUFB:, sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:") is not None
    assert digest_of(b"xsha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:") is None
    text = signed_text(agent=b"a", method=b"GET", target=b"/p?q=1", timestamp=b"1", nonce=b"n", digest=b"d")
    assert text == b"farhand-request-v1\na\nGET\n/p?q=1\n1\nn\nd"
    seed = Ed25519PrivateKey.from_private_bytes(bytes(32))
    public = base64.b64encode(seed.public_key().public_bytes_raw()).decode()
    assert public == "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik="
    assert parse_key(public) is not None
    assert parse_key(public[:-1]) is None
    assert parse_key(public.replace("=", "")) is None
