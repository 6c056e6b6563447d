// Who this device is: the bridge's identifier, or one of this browser's own.

const KEY = "pulsar.identity";
const BROWSER = /^browser-[0-9a-f]{32}$/;

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function fromBridge(bridge) {
  let said = bridge.serverSyncGetConfig();
  if (typeof said === "string") said = JSON.parse(said);
  const bid = said && said.buildIdentifier;
  if (typeof bid !== "string" || bid === "") throw new Error("the bridge names no buildIdentifier");
  return bid;
}

/** The bid of this device. Throws an Error in words when it can have none. */
export function identity(scope = globalThis) {
  const bridge = scope.AndroidBridge;
  if (bridge && typeof bridge.serverSyncGetConfig === "function") {
    try {
      return fromBridge(bridge);
    } catch (error) {
      throw new Error(`The app could not say which device this is: ${error.message}. Update the app, or open this page in a browser.`);
    }
  }
  let kept;
  try {
    kept = scope.localStorage.getItem(KEY);
    if (!BROWSER.test(kept || "")) {
      kept = "browser-" + hex(crypto.getRandomValues(new Uint8Array(16)));
      scope.localStorage.setItem(KEY, kept);
    }
  } catch {
    throw new Error("This browser keeps nothing for this page, so that the device would be a new one each time. Allow storage for this site.");
  }
  return kept;
}

/** What may be shown of a bid: it is a key. */
export function mask(bid) {
  const [, prefix = "", rest] = /^([A-Za-z]+-)?(.*)$/s.exec(bid);
  return `${prefix}${rest.slice(0, 4)}…`;
}
