/** Lists without end: the next page is put below this one when its link comes into sight. */

/** @type {IntersectionObserver | null} */
let watching = null;

export function startEndless() {
  watching = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) if (isIntersecting) load(target);
  });
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-more]") : null;
    if (!link) return;
    event.preventDefault();
    load(link);
  });
  // Not before the person scrolls: a page that was just opened is as long as the server made it.
  document.addEventListener("scroll", watch, { once: true, passive: true });
}

function watch() {
  const link = document.querySelector("a[data-more]");
  if (link) watching?.observe(link);
}

/** @param {Element} link */
async function load(link) {
  if (!(link instanceof HTMLAnchorElement) || link.ariaBusy === "true") return;
  link.ariaBusy = "true";
  watching?.disconnect();
  const answer = await fetch(link.href).catch(() => null);
  if (!answer?.ok || answer.redirected) {
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
  body.setAttribute("data-older", "");
  document.querySelector("#list-table")?.append(document.importNode(body, true));
  here.replaceChildren(...(foot ? [...document.importNode(foot, true).childNodes] : []));
  watch();
}

/**
 * New rows push others out of the live first page; they go to the top of the pages below it, or
 * the list would have a hole. What left the page because it does not fit the filters any more goes.
 * @param {HTMLElement} place
 * @param {string} html
 * @returns {boolean} whether no row is lost
 */
export function keepPushedOut(place, html) {
  const below = document.querySelector("#list-table tbody[data-older]");
  if (place.id !== "tx-rows" || !below) return true;
  const template = document.createElement("template");
  template.innerHTML = html;
  const next = new Set([...template.content.querySelectorAll("tr[id]")].map((row) => row.id));
  const all = [...document.querySelectorAll("#list-table tr[id]")];
  const last = all.findLastIndex((row) => next.has(row.id));
  if (last < 0) return false;
  const rows = all.filter((row) => place.contains(row));
  for (const row of all) if (next.has(row.id) && !place.contains(row)) row.remove();
  below.prepend(...rows.slice(last + 1).filter((row) => !next.has(row.id)));
  return true;
}
