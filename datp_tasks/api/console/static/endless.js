/**
 * Lists without end: the next page is put below this one when its link comes into sight. With older
 * pages below it the first one is not live any more: rows that new ones push out of it would be
 * missing between the two.
 */

import { pauseLive, resumeLive } from "./live.js";

/** @type {IntersectionObserver | null} */
let watching = null;

export function startEndless() {
  watching = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) if (isIntersecting) load(target, false);
  });
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-more]") : null;
    // In another tab or window it is a page as any other.
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    load(link, true);
  });
  // Not before the person scrolls: a page that was just opened is as long as the server made it.
  document.addEventListener("scroll", watch, { once: true, passive: true });
}

function watch() {
  const link = document.querySelector("a[data-more]");
  if (link) watching?.observe(link);
}

/** @param {Element} link @param {boolean} isAsked by a click, not by scrolling */
async function load(link, isAsked) {
  if (!(link instanceof HTMLAnchorElement) || link.ariaBusy === "true") return;
  link.ariaBusy = "true";
  watching?.disconnect();
  // From here on the rows and the place where the next page begins stay as they are.
  pauseLive("paused: load the page again for newer ones");
  const page = await pageAt(link.href);
  const body = page?.querySelector("tbody[data-part]");
  const foot = page?.querySelector("#list-foot");
  if (body && foot) {
    say("");
    append(body, foot);
    watch();
  } else if (isAsked) {
    location.href = link.href;
  } else {
    link.removeAttribute("aria-busy");
    say("Older ones could not be loaded. Press “Older” to try again.");
    // Below older pages new rows would push out what then stands nowhere.
    if (!document.querySelector("#list-table tbody[data-older]")) resumeLive();
  }
}

/**
 * @param {string} address
 * @returns {Promise<Document | null>} null if there is no such page, or only a part of it came
 */
async function pageAt(address) {
  try {
    const answer = await fetch(address);
    if (!answer.ok || answer.redirected) return null;
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return null;
  }
}

/** @param {Element} body @param {Element} foot */
function append(body, foot) {
  const rows = [...body.querySelectorAll("tr[data-row]")].filter((row) => !document.getElementById(row.id));
  if (rows.length) {
    const below = document.createElement("tbody");
    below.setAttribute("data-older", "");
    below.append(...rows);
    document.querySelector("#list-table td.empty")?.parentElement?.remove();
    document.querySelector("#list-table")?.append(below);
  }
  document.getElementById("list-foot")?.replaceChildren(...foot.childNodes);
}

/** @param {string} text */
function say(text) {
  const place = document.getElementById("list-said");
  if (place) place.textContent = text;
}
