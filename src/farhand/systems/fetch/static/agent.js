// The loop: open a session, collect work, do it, say how it ended.

import { pause } from "./pause.js";
import * as server from "./server.js";
import { carryOut, REFUSED } from "./work.js";

const HOLD_S = 20;
const PENDING_MS = 3000;
const LOST_MS = [1000, 2000, 4000, 8000, 15000, 30000];
const AT_ONCE = 5;

/**
 * An agent. `view` is told what happens: `phase(name, details)`, `begun(job)`, `ended(job, state, words)`,
 * `figures(stats)`. `capabilities()` says what the switches say now.
 */
export class Agent {
  constructor({ bid, view, capabilities }) {
    this.bid = bid;
    this.view = view;
    this.capabilities = capabilities;
    this.sessionId = null;
    this.running = new Map();
    this.asking = null;
    // Who comes back from being cut off wants to hear at once that it is heard again.
    this.connected = false;
  }

  /** Works until it is shut out; resolves then. */
  async work() {
    let lost = 0;
    for (;;) {
      try {
        if (this.sessionId === null) await this.open();
        await this.collect();
        lost = 0;
      } catch (error) {
        if (error instanceof server.Said && error.code === "device-not-approved") {
          this.stop();
          this.view.phase("revoked");
          return;
        }
        if (error instanceof server.Said && error.code === "device-pending") {
          this.sessionId = null;
          this.view.phase("pending", { code: error.document.user_code, expiresIn: error.document.expires_in });
          await pause(PENDING_MS);
        } else if (error instanceof server.Said && error.code === "session-unknown") {
          this.sessionId = null;
        } else {
          const wait = LOST_MS[Math.min(lost, LOST_MS.length - 1)] * (0.75 + Math.random() / 2);
          lost += 1;
          this.connected = false;
          this.view.phase("away", { why: error.message, againMs: wait });
          await pause(wait);
        }
      }
    }
  }

  /** The switches were moved: a claim that is held says what no longer holds. */
  changed() {
    if (this.asking) this.asking.abort("changed");
  }

  stop() {
    for (const job of this.running.values()) job.abort.abort("revoked");
  }

  async open() {
    const data = await server.open({
      bid: this.bid, sessionId: this.sessionId || remembered() || "", capabilities: this.capabilities(), userAgent: navigator.userAgent,
    });
    this.sessionId = data.sessionId;
    remember(data.sessionId);
    this.view.phase("working");
    await this.count();
  }

  async count() {
    try {
      this.view.figures((await server.stats(this.bid, this.sessionId)).stats);
    } catch (error) {
      if (error instanceof server.Said) throw error;
    }
  }

  async collect() {
    const room = AT_ONCE - this.running.size;
    if (room <= 0) {
      await Promise.race([...this.running.values()].map((job) => job.over));
      return;
    }
    const asking = (this.asking = new AbortController());
    let data;
    try {
      const message = { bid: this.bid, sessionId: this.sessionId, capabilities: this.capabilities(), batch: room };
      // While something is under way the answer also says what to stop: it must not be long in coming.
      const holdS = this.running.size ? 2 : HOLD_S;
      data = await server.claim(message, this.connected ? holdS : 0, asking.signal);
    } catch (error) {
      if (asking.signal.aborted) return;
      throw error;
    } finally {
      this.asking = null;
    }
    this.connected = true;
    this.view.phase("working");
    this.cancel(data.cancel);
    for (const job of data.jobs) this.begin(job);
    await pause(data.jobs.length ? 0 : Math.min(data.retryAfterMs, 500));
  }

  cancel(ids = []) {
    for (const id of ids) {
      const job = this.running.get(id);
      if (job) job.abort.abort("cancelled");
    }
  }

  begin({ jobId, request }) {
    const job = { jobId, request, abort: new AbortController(), over: null };
    this.running.set(jobId, job);
    this.view.begun(job);
    job.over = this.carry(job).finally(() => this.running.delete(jobId));
  }

  async carry(job) {
    let message;
    let words = "";
    try {
      const refusing = this.refusal(job.request);
      if (refusing) throw refusing;
      const result = await carryOut(job.request, job.abort.signal);
      message = { result };
      words = `${result.status} ${result.statusText}`.trim() + `, ${result.bytesWritten} bytes in ${result.elapsedMs} ms`;
      if (result.cropped) words += ", cropped";
    } catch (error) {
      const said = { code: error.code || "protocol", message: String(error.message || error) };
      if (error.source) said.source = error.source;
      message = { error: said };
      words = said.message;
    }
    const state = await this.report(job, message);
    this.view.ended(job, state, words);
  }

  /** The switches as they are now, which may have been moved since the work was collected. */
  refusal(request) {
    const now = this.capabilities();
    if ((request.allowInsecureTLS && now.insecureTLS !== "accept") || (request.allowPrivateIP && now.privateIP !== "accept")) {
      return Object.assign(new Error("this device does not take such work"), { code: REFUSED });
    }
    return null;
  }

  async report(job, message) {
    for (let lost = 0; ; lost += 1) {
      try {
        const data = await server.callback({ bid: this.bid, sessionId: this.sessionId, jobId: job.jobId, ...message });
        this.cancel(data.cancel);
        this.view.counted(data.state, message);
        return data.state;
      } catch (error) {
        if (error instanceof server.Said) {
          if (error.code === "session-unknown") {
            this.sessionId = null;
            await this.open().catch(() => pause(1000));
            continue;
          }
          if (error.code === "too-large" && message.result) {
            message = { error: { code: "too-large", message: "the answer is larger than the server takes", source: "agent" } };
            continue;
          }
          return error.code === "device-not-approved" ? "revoked" : "noop";
        }
        await pause(LOST_MS[Math.min(lost, LOST_MS.length - 1)]);
      }
    }
  }
}

const SESSION = "pulsar.session";

function remembered() {
  try {
    return localStorage.getItem(SESSION);
  } catch {
    return null;
  }
}

function remember(id) {
  try {
    localStorage.setItem(SESSION, id);
  } catch {
    // The next load opens another session.
  }
}
