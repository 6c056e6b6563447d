// The server, in the protocol's words.

const API = "/pulsar/agent/api/";

/** An error that the server said: `code` is the protocol's. */
export class Said extends Error {
  constructor(status, document) {
    super(document.message || document.code);
    this.status = status;
    this.code = document.code;
    this.document = document;
  }
}

/** The server could not be reached, or what answered was not the server. */
export class Away extends Error {}

async function call(path, options, signal) {
  let response;
  let document;
  try {
    response = await fetch(API + path, { credentials: "omit", cache: "no-store", redirect: "error", signal, ...options });
    document = await response.json();
  } catch (error) {
    if (signal && signal.aborted) throw error;
    throw new Away(navigator.onLine === false ? "this device is offline" : "the server does not answer");
  }
  if (document && document.status === "ok") return document.data;
  if (document && document.status === "error" && response.status < 500) throw new Said(response.status, document);
  throw new Away(`the server answered ${response.status}`);
}

function post(path, message, signal, headers = {}) {
  const body = JSON.stringify(message);
  return call(path, { method: "POST", headers: { "Content-Type": "application/json", ...headers }, body }, signal);
}

export const open = (message) => post("session", message);
export const claim = (message, waitS, signal) => post("claim", message, signal, { Prefer: `wait=${waitS}` });
export const callback = (message) =>
  post("callback", message, undefined, { "Farhand-Bid": message.bid, "Farhand-Session": message.sessionId });
export const stats = (bid, sessionId) =>
  call("stats", { headers: { "Farhand-Bid": bid, "Farhand-Session": sessionId } });
