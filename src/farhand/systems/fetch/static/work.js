// One request, as far as a browser can carry it out.

export const REFUSED = "agent-refused-override";
const SAFE_WITHOUT_BODY = new Set(["GET", "HEAD"]);
const HARMLESS = new Set(["GET", "HEAD", "OPTIONS"]);
const METHODS = new Set(["CONNECT", "TRACE", "TRACK"]);
const FORBIDDEN = new Set([
  "accept-charset", "accept-encoding", "access-control-request-headers", "access-control-request-method",
  "access-control-request-private-network", "connection", "content-length", "cookie", "cookie2", "date",
  "dnt", "expect", "host", "keep-alive", "origin", "referer", "set-cookie", "te", "trailer",
  "transfer-encoding", "upgrade", "user-agent", "via",
]);
const RANGE = /^bytes=(?:(\d+)-(\d*)|-(\d+))$/;

/** A reason not to do a request, or an end of it, with its code and whose doing it was. */
export class Refused extends Error {
  constructor(code, message, source) {
    super(message);
    this.code = code;
    this.source = source;
  }
}

function giveBack(message) {
  return new Refused(REFUSED, message);
}

function isLoopback(host) {
  return host === "localhost" || host.endsWith(".localhost") || host === "[::1]" || /^127\./.test(host);
}

const DENIED_V4 = [
  [0, 8], [10, 8], [0x64400000, 10], [127, 8], [0xa9fe0000, 16], [0xac100000, 12], [0xc0000000, 24],
  [0xc0000200, 24], [0xc0a80000, 16], [0xc6120000, 15], [0xc6336400, 24], [0xcb007100, 24], [224, 4], [240, 4],
].map(([net, bits]) => [net < 256 ? net * 2 ** 24 : net, bits]);

function isPrivate(host) {
  if (/\.(local|internal|localhost)$/.test(host) || !/[.:]/.test(host)) return true;
  if (host.startsWith("[")) return !/^\[[23][0-9a-f]{3}:/.test(host) || /^\[(2001:(0?db8|0*:)|2002:|3fff:)/.test(host);
  const parts = /^(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(host);
  if (!parts) return false;
  const address = parts.slice(1).reduce((sum, part) => sum * 256 + Number(part), 0);
  return DENIED_V4.some(([net, bits]) => Math.floor(address / 2 ** (32 - bits)) === Math.floor(net / 2 ** (32 - bits)));
}

/**
 * The URL of a target, checked as far as a page can: the names in it. What a name leads to, a
 * browser does not say. A page that came from this very machine may go to this machine.
 */
export function target(text, here) {
  let url;
  try {
    url = new URL(text);
  } catch {
    throw new Refused("bad-url", "the URL cannot be read", "policy");
  }
  if (!/^https?:$/.test(url.protocol)) throw new Refused("bad-url", `not a URL of the web: ${url.protocol}`, "policy");
  if (url.username || url.password) throw new Refused("bad-url", "credentials in a URL are not sent", "policy");
  if (url.origin === here.origin) throw new Refused("blocked-address", "the server itself is no target", "policy");
  const host = url.hostname.replace(/\.$/, "");
  const home = isLoopback(host) && isLoopback(here.hostname);
  if (isPrivate(host) && !home) throw new Refused("blocked-address", "the target is a private or local address", "policy");
  return url;
}

function checkCapabilities(request, here) {
  if (request.allowInsecureTLS) throw giveBack("a browser cannot skip the check of a certificate");
  if (request.allowPrivateIP) throw giveBack("a browser cannot keep to the networks that were allowed");
  if (request.followRedirects === false) throw giveBack("a browser does not show what a redirect answered");
  const method = (request.method || "GET").toUpperCase();
  if (METHODS.has(method)) throw giveBack(`a browser does not send ${method}`);
  if (request.body !== null && request.body !== undefined && SAFE_WITHOUT_BODY.has(method)) {
    throw giveBack(`a browser sends no body with ${method}`);
  }
  for (const name of Object.keys(request.headers || {})) {
    const lower = name.toLowerCase();
    if (FORBIDDEN.has(lower) || lower.startsWith("proxy-") || lower.startsWith("sec-")) {
      throw giveBack(`a browser does not let a page set the header ${name}`);
    }
  }
  if (here.protocol === "https:" && /^http:/i.test(request.url)) {
    throw giveBack("a page that came over HTTPS may not fetch over plain HTTP");
  }
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

function base64Of(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  }
  return btoa(text);
}

function settings(request, signal) {
  let headers;
  try {
    headers = new Headers(request.headers || {});
  } catch {
    throw new Refused("refused-header", "the browser takes a header of this request for none", "policy");
  }
  if (request.rangeRequest) headers.set("Range", request.rangeRequest);
  let body;
  if (request.body !== null && request.body !== undefined) {
    body = request.bodyBase64 ? bytesOf(request.body) : request.body;
  }
  return {
    method: request.method || "GET", headers, body, signal,
    mode: "cors", credentials: "omit", cache: "no-store", redirect: "follow", referrerPolicy: "no-referrer",
  };
}

async function read(response, limit) {
  const pieces = [];
  let size = 0;
  let cropped = false;
  const reader = response.body ? response.body.getReader() : null;
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    const room = limit - size;
    if (value.length > room) {
      pieces.push(value.subarray(0, room));
      size += room;
      cropped = true;
      reader.cancel().catch(() => {});
      break;
    }
    pieces.push(value);
    size += value.length;
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return { bytes: whole, cropped };
}

/** The part of a whole body that a range means; null when the range lies beyond it. */
function slice(bytes, text) {
  const [, first, last, tail] = RANGE.exec(text);
  const from = tail === undefined ? Number(first) : Math.max(0, bytes.length - Number(tail));
  const to = tail !== undefined || last === "" ? bytes.length - 1 : Math.min(Number(last), bytes.length - 1);
  return from > to ? null : { part: bytes.subarray(from, to + 1), first: from, last: to };
}

function ranged(request, response, body) {
  if (!request.rangeRequest) return { bytes: body.bytes };
  if (response.status !== 200) return { bytes: body.bytes, range: { honoured: response.status === 206 } };
  if (!RANGE.test(request.rangeRequest)) throw new Refused("bad-range", "the range cannot be read", "policy");
  const open = request.rangeRequest.startsWith("bytes=-");
  const found = body.cropped && open ? null : slice(body.bytes, request.rangeRequest);
  if (found === null && body.cropped) {
    throw new Refused("too-large", "the target sent everything, and the range lies beyond what may be read of it", "target");
  }
  if (found === null) throw new Refused("bad-range", "the target sent less than the range asks for", "target");
  const total = body.cropped ? null : body.bytes.length;
  return { bytes: found.part, range: { honoured: false, first: found.first, last: found.last, total } };
}

/** Text where the bytes are text; what was cropped may end amid a character. */
function texted(bytes, cropped) {
  if (bytes.includes(0)) return { body: base64Of(bytes), bodyBase64: true, bytesWritten: bytes.length };
  const most = cropped ? 3 : 0;
  for (let less = 0; less <= most && less <= bytes.length; less += 1) {
    const part = bytes.subarray(0, bytes.length - less);
    try {
      const body = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(part);
      return { body, bodyBase64: false, bytesWritten: part.length };
    } catch {
      // Not here.
    }
  }
  return { body: base64Of(bytes), bodyBase64: true, bytesWritten: bytes.length };
}

/** Carries out a request; resolves to its result in the words of the protocol. Throws Refused. */
export async function carryOut(request, signal, here = location) {
  const began = performance.now();
  checkCapabilities(request, here);
  const url = target(request.url, here);
  const stop = new AbortController();
  const timeoutMs = request.timeoutMs || 10000;
  let response = null;
  const timer = setTimeout(() => stop.abort("timeout"), timeoutMs);
  const cancel = () => stop.abort("cancelled");
  signal.addEventListener("abort", cancel, { once: true });
  if (signal.aborted) cancel();
  try {
    response = await fetch(url, settings(request, stop.signal));
    if (response.url) target(response.url, here);
    const body = await read(response, request.maxResponseBytes || 2097152);
    const { bytes, range } = ranged(request, response, body);
    const result = {
      status: response.status,
      statusText: response.statusText,
      headers: Object.fromEntries(response.headers),
      ...texted(bytes, body.cropped),
      cropped: body.cropped,
      cropOriginalSize: null,
      elapsedMs: Math.round(performance.now() - began),
      url: response.url || url.href,
    };
    if (range) result.range = range;
    return result;
  } catch (error) {
    throw inWords(error, { signal: stop.signal, timeoutMs, response, method: request.method });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", cancel);
  }
}

function inWords(error, { signal, timeoutMs, response, method }) {
  if (error instanceof Refused) return error;
  if (signal.aborted && signal.reason === "timeout") {
    return new Refused("timeout", `no whole answer within ${timeoutMs} ms`, "target");
  }
  if (signal.aborted) return new Refused("cancelled", "the server said to stop", "agent");
  if (error instanceof TypeError && response) {
    return new Refused("protocol", "the connection ended amid the answer", "target");
  }
  if (error instanceof TypeError) {
    const words = globalThis.navigator && navigator.onLine === false
      ? "this device is offline"
      : "the browser shows no answer: the target cannot be reached, or does not allow pages of others to read it (CORS)";
    if (HARMLESS.has((method || "GET").toUpperCase())) return new Refused("connect", words, "target");
    // What may not be read may have been carried out: `connect` would say that nothing was sent.
    return new Refused("protocol", `${words}; it may have been carried out all the same`, "target");
  }
  return new Refused("protocol", String((error && error.message) || error), "agent");
}
