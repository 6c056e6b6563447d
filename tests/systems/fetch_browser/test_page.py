"""The page that is an agent, in a real Chromium against a real server."""

import base64
import json

import pytest

from farhand.systems.fetch.pages import POLICY
from farhand.testing.clock import FakeClock
from tests.peers.chromium import Profile
from tests.server.serving import Server, until
from tests.systems.fetch_browser.conftest import (
    BINARY,
    TEXT,
    Target,
    approve,
    ended,
    page,
    phase,
    ready,
    reload,
    submit,
)

BRIDGE = """globalThis.AndroidBridge = {
    serverSyncGetConfig: () => JSON.stringify({buildIdentifier: "QUJDREVGR0hJSktMTU5PUA==", other: 1}),
};"""


SENTENCES = """{
    const sentence = document.querySelector("#sentence");
    globalThis.sentences = [];
    new MutationObserver(() => sentences.push(sentence.textContent)).observe(sentence, {childList: true});
}"""


def test_a_page_waits_is_approved_collects_and_fetches(
    server: Server, profile: Profile, target: Target
) -> None:
    tab = page(server, profile)
    approve(server, tab)
    job = ended(server, submit(server, target.url(), headers={"X-Tool": "mine"}))
    assert job["state"] == "done"
    result = job["result"]
    assert (result["status"], result["body"], result["bytesWritten"]) == (200, '{"ok":true}', 11)
    assert result["headers"]["content-type"] == "application/json"
    ((method, path, sent, _),) = target.seen
    headers = {name.lower(): value for name, value in sent.items()}
    assert (method, path, headers["x-tool"]) == ("GET", "/data", "mine")
    assert not headers.keys() & {"cookie", "referer"}
    until("the page shows the end", lambda: "done" in tab.text("#work"))
    assert tab.text("#jobsDone") == "1"
    assert tab.complaints() == []


def test_the_identity_outlives_the_page_and_only_its_mask_is_shown(server: Server, profile: Profile) -> None:
    tab = page(server, profile)
    device = approve(server, tab)
    bid = tab.evaluate("localStorage.getItem('pulsar.identity')")
    assert bid.startswith("browser-")
    assert len(bid) == len("browser-") + 32
    assert tab.text("#device") == bid[:12] + "…"
    assert bid not in tab.evaluate("document.body.innerText")
    reload(tab)
    phase(tab, "working")
    (agent,) = server.call("GET", "/agents").ok()["items"]
    assert (agent["id"], agent["runtime"]) == (device, "browser")


def test_a_device_that_is_shut_out_says_so_and_asks_again_when_told(
    server: Server, profile: Profile, target: Target
) -> None:
    tab = page(server, profile)
    device = approve(server, tab)
    job = submit(server, target.url("/slow"))
    until("the target is asked", lambda: target.asked("/slow"))
    server.call("POST", f"/agents/{device}/revoke").ok()
    phase(tab, "revoked")
    assert "shut this device out" in tab.text("#sentence")
    target.go.set()
    assert server.job(job)["state"] in ("running", "queued")
    tab.evaluate(SENTENCES)
    tab.click("#again")
    until("it asked again", lambda: "Asking again…" in tab.evaluate("sentences"))
    until("it is told", lambda: "shut this device out" in tab.evaluate("sentences.at(-1)"))


def test_the_bridge_says_who_the_device_is(server: Server, profile: Profile, target: Target) -> None:
    tab = page(server, profile, script=BRIDGE)
    approve(server, tab)
    (agent,) = server.call("GET", "/agents").ok()["items"]
    assert (agent["runtime"], agent["bid"]) == ("android-bridge", "QUJD…")
    assert ended(server, submit(server, target.url()))["state"] == "done"
    assert tab.evaluate("localStorage.getItem('pulsar.identity')") is None


def test_a_bridge_that_names_nobody_is_told_in_words(server: Server, profile: Profile) -> None:
    tab = page(server, profile, script="globalThis.AndroidBridge = {serverSyncGetConfig: () => '{}'};")
    phase(tab, "broken")
    assert "which device this is" in tab.text("#sentence")
    assert server.call("GET", "/agents/pending").ok()["items"] == []


def test_a_bridge_without_storage_works(server: Server, profile: Profile, target: Target) -> None:
    nothing = "Object.defineProperty(globalThis, 'localStorage', {get: () => null});"
    tab = page(server, profile, script=BRIDGE + nothing)
    approve(server, tab)
    tab.click("input[name=privateIP][value=refuse]")
    assert ended(server, submit(server, target.url()))["state"] == "done"
    assert tab.complaints() == []


def test_two_tabs_are_one_device_and_the_second_takes_over(
    server: Server, profile: Profile, target: Target
) -> None:
    first = page(server, profile)
    approve(server, first)
    second = page(server, profile)
    phase(second, "busy")
    assert ended(server, submit(server, target.url()))["state"] == "done"
    assert target.asked("/data") == 1
    first.close()
    phase(second, "working")
    assert ended(server, submit(server, target.url()))["state"] == "done"
    assert target.asked("/data") == 2
    assert len(server.call("GET", "/agents").ok()["items"]) == 1


def test_tabs_take_turns_where_a_page_has_no_locks(server: Server, profile: Profile, target: Target) -> None:
    without = "Object.defineProperty(Navigator.prototype, 'locks', {get: () => undefined});"
    first = page(server, profile, script=without)
    approve(server, first)
    second = page(server, profile, script=without)
    phase(second, "busy")
    first.close()
    phase(second, "working")
    assert ended(server, submit(server, target.url()))["state"] == "done"


@pytest.mark.parametrize(("method", "state"), [("GET", "done"), ("POST", "uncertain")])
def test_what_a_reload_interrupts_is_known_once_its_lease_is_over(
    timed: Server, clock: FakeClock, profile: Profile, target: Target, method: str, state: str
) -> None:
    tab = ready(timed, profile)
    job = submit(timed, target.url("/slow"), method=method)
    until("the target is asked", lambda: target.asked("/slow"))
    reload(tab)
    phase(tab, "working")
    target.go.set()
    clock.advance(26_000)
    assert ended(timed, job)["state"] == state
    assert target.asked("/slow") == (2 if method == "GET" else 1)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"headers": {"Cookie": "a=b"}}, "Cookie"),
        ({"headers": {"Sec-Fetch-Site": "none"}}, "Sec-Fetch-Site"),
        ({"followRedirects": False}, "redirect"),
        ({"body": "x"}, "no body with GET"),
    ],
)
def test_what_a_browser_cannot_do_goes_back_with_the_reason(
    server: Server, profile: Profile, target: Target, request_: dict[str, object], words: str
) -> None:
    tab = ready(server, profile)
    job = submit(server, target.url(), **request_)
    until("the page gives it back", lambda: "given back" in tab.text("#work"))
    found = server.await_state(job, "queued")
    assert words in found["reason"]
    assert target.seen == []
    assert tab.text("#jobsRefused") == "1"


def test_work_that_wants_more_than_a_browser_can_is_never_offered(
    server: Server, profile: Profile, target: Target
) -> None:
    tab = ready(server, profile)
    assert tab.evaluate("document.querySelector('input[value=accept]').disabled") is True
    wanting = [
        submit(server, target.url(), **{word: True}) for word in ("allowPrivateIP", "allowInsecureTLS")
    ]
    assert ended(server, submit(server, target.url()))["state"] == "done"
    assert [server.job(job)["state"] for job in wanting] == ["queued", "queued"]


def test_the_switches_are_kept_and_said(server: Server, profile: Profile) -> None:
    tab = ready(server, profile)
    tab.click("input[name=privateIP][value=refuse]")
    reload(tab)
    phase(tab, "working")
    assert tab.evaluate("document.querySelector('input[name=privateIP]:checked').value") == "refuse"


def test_a_large_answer_is_cropped_at_a_whole_character(
    server: Server, profile: Profile, target: Target
) -> None:
    ready(server, profile)
    # The fourth byte of the text lies amid its third character.
    result = ended(server, submit(server, target.url("/text"), maxResponseBytes=3))["result"]
    assert (result["cropped"], result["body"], result["bytesWritten"]) == (True, "gr", 2)
    whole = ended(server, submit(server, target.url("/text")))["result"]
    assert (whole["cropped"], whole["body"]) == (False, TEXT)


def test_bytes_that_are_no_text_come_as_they_are(server: Server, profile: Profile, target: Target) -> None:
    ready(server, profile)
    job = submit(server, target.url("/binary"))
    result = ended(server, job)["result"]
    assert result["bodyBase64"] is True
    assert base64.b64decode(result["body"]) == BINARY
    reply = server.call("GET", f"/jobs/{job}/result")
    assert (reply.status, reply.body) == (200, BINARY)


def test_a_range_is_cut_out_where_the_target_sends_everything(
    server: Server, profile: Profile, target: Target
) -> None:
    ready(server, profile)
    result = ended(server, submit(server, target.url("/binary"), rangeRequest="bytes=200-207"))["result"]
    assert result["bodyBase64"] is True
    assert base64.b64decode(result["body"]) == BINARY[200:208]
    assert result["range"] == {"honoured": False, "first": 200, "last": 207, "total": len(BINARY)}


@pytest.mark.parametrize("wanted", ["bytes=-8", "bytes=200-207"])
def test_a_range_beyond_what_may_be_read_is_not_made_up(
    server: Server, profile: Profile, target: Target, wanted: str
) -> None:
    ready(server, profile)
    job = submit(server, target.url("/binary"), rangeRequest=wanted, maxResponseBytes=100)
    result = ended(server, job)["result"]
    assert (result["code"], result["source"]) == ("too-large", "target")


def test_an_unsafe_request_that_may_not_be_read_is_not_called_unsent(
    server: Server, profile: Profile, target: Target
) -> None:
    ready(server, profile)
    job = ended(server, submit(server, target.url("/closed"), method="POST", body="pay"))
    assert (job["state"], job["result"]["code"]) == ("failed", "protocol")
    assert "may have been carried out" in job["error"]
    assert target.asked("/closed") == 1


def test_the_server_itself_is_no_target(server: Server, profile: Profile) -> None:
    ready(server, profile)
    job = ended(server, submit(server, f"http://127.0.0.1:{server.port}/agents"))
    assert (job["state"], job["result"]["code"]) == ("failed", "blocked-address")


def test_a_body_is_sent_as_it_is(server: Server, profile: Profile, target: Target) -> None:
    ready(server, profile)
    body = base64.b64encode(BINARY).decode()
    job = ended(server, submit(server, target.url(), method="PUT", body=body, bodyBase64=True))
    assert job["state"] == "done"
    assert [(method, sent) for method, _, _, sent in target.seen] == [("PUT", BINARY)]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/closed", "connect"),
        ("/away?http://127.0.0.1:1/", "connect"),
        ("/away?http://192.0.2.1.example.internal/", "connect"),
    ],
)
def test_what_the_browser_may_not_read_fails_in_words(
    server: Server, profile: Profile, target: Target, path: str, code: str
) -> None:
    ready(server, profile)
    job = ended(server, submit(server, target.url(path)))
    assert (job["state"], job["result"]["code"]) == ("failed", code)
    assert "CORS" in job["error"]
    assert "secret" not in json.dumps(job)


def test_an_answer_that_does_not_come_is_a_timeout(server: Server, profile: Profile, target: Target) -> None:
    ready(server, profile)
    job = ended(server, submit(server, target.url("/slow"), timeoutMs=300))
    assert (job["state"], job["result"]["code"], job["result"]["source"]) == ("failed", "timeout", "target")


def test_a_job_that_is_cancelled_is_stopped(server: Server, profile: Profile, target: Target) -> None:
    tab = ready(server, profile)
    job = submit(server, target.url("/slow"), timeoutMs=60_000)
    until("the target is asked", lambda: target.asked("/slow"))
    server.call("DELETE", f"/jobs/{job}").ok()
    assert ended(server, job)["state"] == "cancelled"
    until("the page knows", lambda: "the server said to stop" in tab.text("#work"))


def test_a_server_that_is_away_is_told_in_words(server: Server, profile: Profile) -> None:
    tab = ready(server, profile)
    tab.call("Network.enable")
    speed = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    tab.call("Network.emulateNetworkConditions", offline=True, **speed)
    # What is held goes on; moving a switch asks anew.
    tab.click("input[name=privateIP][value=refuse]")
    phase(tab, "away")
    assert "tries again" in tab.text("#sentence")
    tab.call(
        "Network.emulateNetworkConditions",
        offline=False,
        latency=0,
        downloadThroughput=-1,
        uploadThroughput=-1,
    )
    phase(tab, "working")


@pytest.mark.parametrize("path", ["ui", "install", "static/main.js"])
def test_pages_come_with_a_strict_policy_and_without_a_key(server: Server, path: str) -> None:
    reply = server.call("GET", f"/pulsar/agent/{path}", key=None)
    assert reply.status == 200
    assert reply.headers["content-security-policy"] == POLICY.decode()
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert b"<style" not in reply.body
    assert b"onclick" not in reply.body


def test_the_page_to_install_from_shows_the_address_in_full(server: Server, profile: Profile) -> None:
    tab = profile.tab(f"http://127.0.0.1:{server.port}/pulsar/agent/install")
    address = f"http://127.0.0.1:{server.port}/pulsar/agent/ui"
    until("the address is shown", lambda: tab.text("#address") == address)
    assert tab.complaints() == []
