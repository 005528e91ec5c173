/** What pages of the console do beyond links and forms; each works without it, too. */

import { startBulk } from "./bulk.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";

/** Buttons that copy what stands beside them. */
function startCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("button[data-copy]") : null;
    if (!(button instanceof HTMLButtonElement)) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy ?? "");
      button.textContent = "copied";
    } catch {
      button.textContent = "not allowed";
    }
    setTimeout(() => (button.textContent = "copy"), 1_500);
  });
  for (const button of document.querySelectorAll("button[data-copy]")) button.classList.remove("hidden");
  document.addEventListener("datp:changed", () => {
    for (const button of document.querySelectorAll("button[data-copy]")) button.classList.remove("hidden");
  });
}

/** The next page of a list is put below this one. */
function startEndless() {
  document.addEventListener("click", async (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-more]") : null;
    if (!(link instanceof HTMLAnchorElement)) return;
    event.preventDefault();
    link.setAttribute("aria-busy", "true");
    const answer = await fetch(link.href);
    if (!answer.ok || answer.redirected) {
      location.href = link.href;
      return;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const body = page.querySelector("tbody[data-part]");
    const foot = page.querySelector("#list-foot");
    const here = document.getElementById("list-foot");
    if (!body || !here) return;
    body.removeAttribute("id");
    body.removeAttribute("data-part");
    document.querySelector("#list-table")?.append(document.importNode(body, true));
    here.replaceChildren(...(foot ? [...document.importNode(foot, true).childNodes] : []));
  });
}

startKeys();
startLive();
startBulk();
startCopying();
startEndless();
document.documentElement.dataset.ready = "yes";
