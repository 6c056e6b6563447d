// Waiting that goes on in a background tab: the timers of a worker are not slowed down there.

const SOURCE = new URL("timer.js", import.meta.url);
const waiting = new Map();
let worker = null;
let count = 0;

function timer() {
  if (worker === null) {
    worker = new Worker(SOURCE);
    worker.onmessage = (message) => {
      const go = waiting.get(message.data);
      waiting.delete(message.data);
      if (go) go();
    };
    worker.onerror = () => {
      worker = false;
      for (const go of waiting.values()) go();
      waiting.clear();
    };
  }
  return worker;
}

/** Resolves after `ms`, or as soon as the signal says stop. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    if (signal && signal.aborted) return resolve();
    const id = ++count;
    const go = () => {
      waiting.delete(id);
      if (signal) signal.removeEventListener("abort", go);
      resolve();
    };
    if (signal) signal.addEventListener("abort", go, { once: true });
    waiting.set(id, go);
    const clock = timer();
    if (clock) clock.postMessage({ id, ms });
    else setTimeout(go, ms);
  });
}
