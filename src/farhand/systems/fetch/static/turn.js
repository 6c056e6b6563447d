// Tabs that are the same device take turns: one works, the others wait until it is gone.

const LEASE_MS = 6000;
const BEAT_MS = 2000;

/**
 * Calls `busy` when another tab is at work; resolves when it is this tab's turn, which it keeps
 * for as long as it lives.
 */
export async function turn(bid, busy, { pause, storage = kept(), locks = navigator.locks } = {}) {
  const name = `pulsar.agent ${bid}`;
  if (locks) return byLock(name, busy, locks);
  // No locks on pages that came over plain HTTP from another machine: a lease in the storage.
  // Where nothing is kept either, tabs know nothing of each other: the server gives no job to one device twice.
  if (storage === null) return;
  const me = String(Math.random());
  for (;;) {
    const held = read(storage);
    if (!held || held.by === me || Date.now() - held.at > LEASE_MS || held.at > Date.now() + LEASE_MS) {
      write(storage, me);
      await pause(100 + Math.random() * 200);
      if ((read(storage) || {}).by === me) break;
    }
    busy();
    await pause(BEAT_MS);
  }
  (async () => {
    for (;;) {
      write(storage, me);
      await pause(BEAT_MS);
    }
  })();
  addEventListener("pagehide", () => storage.removeItem("pulsar.turn"));
}

function byLock(name, busy, locks) {
  return new Promise((resolve, reject) => {
    const keep = (lock) => {
      if (lock === null) {
        busy();
        locks.request(name, keep).catch(reject);
        return undefined;
      }
      resolve();
      return new Promise(() => {});
    };
    locks.request(name, { ifAvailable: true }, keep).catch(reject);
  });
}

function kept() {
  try {
    return globalThis.localStorage;
  } catch {
    return null;
  }
}

function read(storage) {
  try {
    return JSON.parse(storage.getItem("pulsar.turn"));
  } catch {
    return null;
  }
}

function write(storage, by) {
  storage.setItem("pulsar.turn", JSON.stringify({ by, at: Date.now() }));
}
