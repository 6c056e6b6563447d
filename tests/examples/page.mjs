// The page's own script against the real CMS, with as much of a browser around it as it touches.
// Says in lines of JSON what a person would see, and presses the buttons that they would.

import { readFileSync } from "node:fs";
import vm from "node:vm";

const [script, cms] = process.argv.slice(2);
const html = await (await fetch(cms)).text();

function element(id) {
  if (!html.includes(`id="${id}"`)) throw new Error(`the page has no ${id}`);
  const listeners = [];
  return {
    hidden: new RegExp(`id="${id}"[^>]*\\shidden`).test(html),
    disabled: false,
    removeAttribute(name) { delete this[name]; },
    addEventListener(_, listener) { listeners.push(listener); },
    async click() { if (!this.disabled && !this.hidden) for (const l of listeners) await l(); },
  };
}

const elements = Object.fromEntries(["say", "qr", "connect", "disconnect"].map((id) => [id, element(id)]));
const { say, qr, connect, disconnect } = elements;
const shown = [];
Object.defineProperty(say, "textContent", {
  set(text) { shown.push(text); console.log(JSON.stringify({ say: text })); },
});
Object.defineProperty(qr, "src", {
  configurable: true,
  set(url) { console.log(JSON.stringify({ qr: url })); },
});

vm.runInNewContext(readFileSync(script, "utf8"), {
  document: { getElementById: (id) => elements[id] },
  fetch: (path, options) => fetch(new URL(path, cms), options),
  crypto, setTimeout, Date, JSON, Error, Promise,
});

function state() {
  return { qr: !qr.hidden, connect: !connect.hidden, disconnect: !disconnect.hidden };
}

console.log(JSON.stringify({ state: state() }));
await connect.click();
console.log(JSON.stringify({ state: state() }));
await disconnect.click();
console.log(JSON.stringify({ state: state() }));
