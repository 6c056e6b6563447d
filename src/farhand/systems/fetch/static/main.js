// The page: what a person sees of the agent.

import { Agent } from "./agent.js";
import { identity, mask } from "./identity.js";
import { pause } from "./pause.js";
import { turn } from "./turn.js";

const KEPT = 50;
const SWITCHES = ["privateIP", "insecureTLS"];
const by = (id) => document.getElementById(id);
const figures = { claims: 0, jobsDone: 0, jobsFailed: 0, jobsRefused: 0, bytesOut: 0 };
const lines = new Map();
let countdown = 0;

const PHASES = {
  working: () => ["working", "good", "At work: it collects requests and carries them out."],
  busy: () => ["waiting", "wait", "Another tab of this browser is at work. This one takes over when that is closed."],
  revoked: () => ["shut out", "bad", "An owner has shut this device out. It does nothing until somebody lets it in again."],
  away: ({ why, againMs }) => ["no server", "bad", `Not connected: ${why}. It tries again in ${Math.ceil(againMs / 1000)} s.`],
  broken: ({ why }) => ["stopped", "bad", why],
  pending: ({ code }) => ["pending", "wait", code
    ? "This device waits for approval. Tell its owner this code:"
    : "This device waits for approval, but too many others do too. It asks again and again."],
};

function phase(name, details = {}) {
  const [pill, mood, sentence] = PHASES[name](details);
  by("pill").textContent = pill;
  by("pill").dataset.mood = mood;
  document.body.dataset.phase = name;
  if (by("sentence").textContent !== sentence) by("sentence").textContent = sentence;
  by("again").hidden = name !== "revoked";
  by("pending").hidden = !(name === "pending" && details.code);
  if (name === "pending" && details.code) showCode(details.code, details.expiresIn);
}

function showCode(code, expiresIn) {
  if (by("code").textContent !== code) by("code").textContent = code;
  countdown = Date.now() + expiresIn * 1000;
  const left = Math.max(0, Math.round(expiresIn));
  by("left").textContent = `Good for ${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")} more; then a new one comes.`;
}

function showFigures() {
  for (const [name, value] of Object.entries(figures)) by(name).textContent = value.toLocaleString();
}

function line(job) {
  const item = document.createElement("li");
  const at = document.createElement("time");
  const what = document.createElement("span");
  const state = document.createElement("span");
  const why = document.createElement("span");
  at.textContent = new Date().toLocaleTimeString([], { hour12: false });
  what.className = "what";
  what.textContent = `${job.request.method} ${shown(job.request.url)}`;
  state.className = "state";
  state.textContent = "running";
  state.dataset.mood = "wait";
  why.className = "why";
  item.append(at, what, state, why);
  by("work").prepend(item);
  by("idle").hidden = true;
  while (by("work").children.length > KEPT) by("work").lastElementChild.remove();
  return { item, state, why };
}

// A query may hold secrets, and a screen is seen by others.
function shown(text) {
  try {
    const url = new URL(text);
    return url.origin + url.pathname;
  } catch {
    return "a URL that cannot be read";
  }
}

const ENDS = {
  done: ["done", "good"], failed: ["failed", "bad"], refused: ["given back", "wait"],
  noop: ["not counted", "wait"], revoked: ["shut out", "bad"],
};

const view = {
  phase,
  figures(stats) {
    Object.assign(figures, stats);
    showFigures();
  },
  begun(job) {
    lines.set(job.jobId, line(job));
    figures.claims += 1;
    showFigures();
  },
  counted(state, message) {
    if (state === "done") {
      figures.jobsDone += 1;
      figures.bytesOut += message.result.bytesWritten;
    }
    if (state === "failed") figures.jobsFailed += 1;
    if (state === "refused") figures.jobsRefused += 1;
    showFigures();
  },
  ended(job, state, words) {
    const { state: shownState, why } = lines.get(job.jobId);
    lines.delete(job.jobId);
    const [text, mood] = ENDS[state] || [state, "wait"];
    shownState.textContent = text;
    shownState.dataset.mood = mood;
    why.textContent = state === "noop" ? `${words} (another device was first, or the job is over)` : words;
  },
};

function capabilities() {
  return Object.fromEntries(SWITCHES.map((name) => [name, document.querySelector(`input[name=${name}]:checked`).value]));
}

// A WebView may keep nothing for pages: the bridge still says who the device is.
function recalled(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function keep(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // It holds until the page is closed.
  }
}

function restoreSwitches() {
  for (const name of SWITCHES) {
    const kept = recalled(`pulsar.${name}`) === "refuse" ? "refuse" : "ignore";
    document.querySelector(`input[name=${name}][value=${kept}]`).checked = true;
  }
}

function notice(text) {
  by("notice").textContent = text;
  by("notice").hidden = false;
}

function watchSleep() {
  let frozen = null;
  document.addEventListener("freeze", () => (frozen = new Date()));
  document.addEventListener("resume", () => {
    if (frozen) notice(`The browser put this tab to sleep from ${frozen.toLocaleTimeString()} to ${new Date().toLocaleTimeString()}: nothing was collected meanwhile. Pin the tab, or let this site stay awake.`);
    frozen = null;
  });
}

async function main() {
  let bid;
  try {
    bid = identity();
  } catch (error) {
    phase("broken", { why: error.message });
    return;
  }
  by("device").textContent = mask(bid);
  restoreSwitches();
  watchSleep();
  await turn(bid, () => phase("busy"), { pause });
  const agent = new Agent({ bid, view, capabilities });
  for (const name of SWITCHES) {
    for (const input of document.querySelectorAll(`input[name=${name}]`)) {
      input.addEventListener("change", () => {
        keep(`pulsar.${name}`, input.value);
        agent.changed();
      });
    }
  }
  for (;;) {
    await agent.work();
    await new Promise((resolve) => by("again").addEventListener("click", resolve, { once: true }));
    agent.sessionId = null;
    by("sentence").textContent = "Asking again…";
  }
}

setInterval(() => {
  if (document.body.dataset.phase === "pending" && countdown) {
    const left = Math.max(0, Math.round((countdown - Date.now()) / 1000));
    by("left").textContent = `Good for ${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")} more; then a new one comes.`;
  }
}, 1000);

main().catch((error) => phase("broken", { why: `The page failed: ${error.message}. Load it again.` }));
