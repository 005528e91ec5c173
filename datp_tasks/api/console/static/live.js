/**
 * Live parts: one stream per tab says what elements look like now.
 * The stream is closed while the tab is hidden, opened again after an error, and a page that hears
 * nothing says that it is stale.
 */

import { changeContent } from "./change.js";

const QUIET_MS = 12_000;
const AGAIN_MS = 2_000;

/** @type {EventSource | null} */
let source = null;
/** @type {number} */
let heardAt = 0;
/** @type {number} */
let again = 0;
/** What the page says while it is to stay as it is; empty while it is live. */
let pausedBy = "";
const address = document.body.dataset.live ?? "";
const words = document.getElementById("freshness-words");

/** @param {string} text */
function say(text) {
  if (words && words.textContent !== text) words.textContent = text;
}

/** @param {boolean} isStale @param {string} text */
function setStale(isStale, text) {
  document.documentElement.classList.toggle("stale", isStale);
  say(text);
}

/** @param {MessageEvent<string>} message */
function onParts(message) {
  heard();
  /** @type {Record<string, string>} */
  const parts = JSON.parse(message.data);
  for (const [id, html] of Object.entries(parts)) {
    const place = document.getElementById(id);
    if (place) changeContent(place, html);
  }
}

function heard() {
  heardAt = performance.now();
  setStale(false, "live");
}

function connect() {
  clearTimeout(again);
  if (!address || document.hidden || source || pausedBy) return;
  source = new EventSource(address);
  source.addEventListener("parts", onParts);
  source.addEventListener("beat", heard);
  source.addEventListener("trouble", (message) => {
    heardAt = performance.now();
    setStale(true, JSON.parse(message.data));
  });
  source.addEventListener("signed-out", () => {
    disconnect();
    // Another tab may have renewed the session; then the stream goes on with the new cookie.
    askAgain();
  });
  source.addEventListener("error", () => {
    setStale(true, "connection lost; trying again");
    // The browser gives up by itself after some answers, and not after others.
    if (source?.readyState === EventSource.CLOSED) {
      disconnect();
      again = setTimeout(askAgain, AGAIN_MS);
    }
  });
}

/** Connect, unless there is no session any more: then nothing but signing in helps. */
async function askAgain() {
  const asking = new AbortController();
  let status = 0;
  try {
    status = (await fetch(address, { signal: asking.signal })).status;
  } catch {
    // The server does not answer: the stream tries on by itself.
  }
  asking.abort();
  if (status === 401) setStale(true, "the session has ended; load the page again");
  else connect();
}

function disconnect() {
  source?.close();
  source = null;
}

/**
 * The page stays as it is, until it is resumed or loaded again.
 * @param {string} why
 */
export function pauseLive(why) {
  if (!address) return;
  pausedBy = why;
  disconnect();
  setStale(false, why);
}

export function resumeLive() {
  pausedBy = "";
  connect();
}

/** Live from now on, if the page has anything live. */
export function startLive() {
  if (!address) return;
  connect();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      disconnect();
      if (!pausedBy) say("paused");
    } else {
      connect();
    }
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  setInterval(() => {
    if (source && heardAt && performance.now() - heardAt > QUIET_MS) {
      setStale(true, "no news; the server may be busy");
    }
  }, 1_000);
}
