"use strict";

const say = document.getElementById("say");
const qr = document.getElementById("qr");
const connect = document.getElementById("connect");
const disconnect = document.getElementById("disconnect");

async function post(path, body = {}) {
  const reply = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!reply.ok) throw new Error(`${path}: ${reply.status}`);
  return reply.json();
}

function pause(ms) {
  return new Promise((done) => setTimeout(done, ms));
}

function hideCode() {
  qr.hidden = true;
  qr.removeAttribute("src");
}

function show(text, linked) {
  say.textContent = text;
  hideCode();
  connect.hidden = linked;
  connect.disabled = false;
  disconnect.hidden = !linked;
}

async function code() {
  for (;;) {
    const said = await post("/code");
    if (said.status !== "pending" && said.status !== "in_progress") return said;
    say.textContent = said.why || "One moment…";
    await pause(200);
  }
}

// Until the phone has scanned it, or until it is no longer valid.
async function linked() {
  const until = Date.now() + 90_000;
  while (Date.now() < until) {
    if ((await post("/linked")).state === "open") return true;
    await pause(1000);
  }
  return false;
}

connect.addEventListener("click", async () => {
  connect.disabled = true;
  say.textContent = "One moment…";
  try {
    const made = await post("/connect", { click: crypto.randomUUID() });
    const said = made.command ? await code() : made;
    if (said.status === "completed" && said.qr) {
      say.textContent = "Scan this with your phone: Settings, Linked devices.";
      qr.src = said.qr;
      qr.hidden = false;
      const done = await linked();
      show(done ? "Connected." : "The code is no longer valid. Try again.", done);
    } else if (said.status === "completed" && said.state === "open") {
      show("Connected.", true);
    } else {
      show(said.why || "That did not work. Try again.", false);
    }
  } catch {
    show("That did not work. Try again.", false);
  }
});

disconnect.addEventListener("click", async () => {
  disconnect.disabled = true;
  try {
    const { state } = await post("/disconnect");
    const ended = state === "close" || state === "none";
    show(ended ? "Not connected." : "That did not work. Try again.", !ended);
  } catch {
    show("That did not work. Try again.", true);
  }
  disconnect.disabled = false;
});
