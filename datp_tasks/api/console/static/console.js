/** What pages of the console do beyond links and forms; each works without it, too. */

import { startBulk } from "./bulk.js";
import { startEndless } from "./endless.js";
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

startKeys();
startLive();
startBulk();
startCopying();
startEndless();
document.documentElement.dataset.ready = "yes";
