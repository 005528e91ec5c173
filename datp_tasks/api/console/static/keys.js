/**
 * The keyboard: `/` searches, `j` and `k` choose a row, `o` opens it, `g` and a letter go to a page,
 * `?` shows this. Keys that are typed into a field are left alone.
 */

let goes = false;
let goesTimer = 0;

/** @returns {HTMLTableRowElement[]} */
function rows() {
  return [...document.querySelectorAll("main tr[data-row]")].filter(
    (each) => each instanceof HTMLTableRowElement && each.offsetParent !== null,
  );
}

/** @param {number} step */
function choose(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("chosen"));
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
  for (const row of all) row.classList.toggle("chosen", row === next);
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
}

function open() {
  const row = rows().find((each) => each.classList.contains("chosen"));
  row?.querySelector("a")?.click();
}

/** @param {KeyboardEvent} event */
function isTyping(event) {
  const at = event.target;
  return (
    at instanceof HTMLInputElement ||
    at instanceof HTMLTextAreaElement ||
    at instanceof HTMLSelectElement ||
    (at instanceof HTMLElement && at.isContentEditable)
  );
}

/** @param {string} key */
function goTo(key) {
  const link = document.querySelector(`nav.pages a[data-key="${CSS.escape(key)}"]`);
  if (link instanceof HTMLElement) link.click();
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const help = document.getElementById("help");
  if (event.key === "Escape" && isTyping(event) && event.target instanceof HTMLElement) {
    event.target.blur();
    return;
  }
  if (isTyping(event) || (help instanceof HTMLDialogElement && help.open)) return;
  if (goes) {
    goes = false;
    goTo(event.key);
    event.preventDefault();
    return;
  }
  /** @type {Record<string, () => void>} */
  const known = {
    "/": () => document.getElementById("search")?.focus(),
    "?": () => help instanceof HTMLDialogElement && help.showModal(),
    j: () => choose(1),
    k: () => choose(-1),
    o: open,
    g: () => {
      goes = true;
      clearTimeout(goesTimer);
      goesTimer = setTimeout(() => (goes = false), 1_500);
    },
  };
  const action = known[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
}

export function startKeys() {
  document.addEventListener("keydown", onKey);
  document.getElementById("help-button")?.addEventListener("click", () => {
    const help = document.getElementById("help");
    if (help instanceof HTMLDialogElement) help.showModal();
  });
}
