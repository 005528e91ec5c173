/**
 * Changes an element into what the server sent, in place: elements that stay the same are not
 * touched, so focus, a selected text, a click that has begun, scroll and what is open survive.
 */

/** What a person did to an element, and the server does not know. @type {Record<string, string[]>} */
const OWN = { DETAILS: ["open"] };
/** A button that copies is shown by the script, and says for a moment what became of a click. */
const COPIES = "button[data-copy]";

/**
 * @param {HTMLElement} place
 * @param {string} html
 */
export function changeContent(place, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  changeChildren(place, template.content);
  document.dispatchEvent(new CustomEvent("datp:changed", { detail: place }));
}

/** @param {Node} node */
function keyOf(node) {
  return node instanceof Element ? node.id : "";
}

/**
 * @param {Element} here
 * @param {ParentNode & Node} wanted
 */
function changeChildren(here, wanted) {
  /** @type {Map<string, Element>} */
  const known = new Map();
  for (const each of here.children) if (each.id) known.set(each.id, each);
  const next = [...wanted.childNodes];
  const keys = new Set(next.map(keyOf).filter(Boolean));
  let at = here.firstChild;
  for (const each of next) {
    const key = keyOf(each);
    const same = key ? known.get(key) : at && !keyOf(at) && at.nodeName === each.nodeName ? at : null;
    if (!same || same.nodeName !== each.nodeName) {
      here.insertBefore(each, at);
      continue;
    }
    at = removeUntil(same, at, keys);
    // A moved element loses the focus, so this is only for another order.
    if (same === at) at = same.nextSibling;
    else here.insertBefore(same, at);
    changeNode(same, each);
  }
  while (at) {
    const after = at.nextSibling;
    at.remove();
    at = after;
  }
}

/**
 * Remove what stands before an element and is not wanted; where to go on.
 * @param {Node} element
 * @param {ChildNode | null} at
 * @param {Set<string>} keys
 */
function removeUntil(element, at, keys) {
  while (at && at !== element && !keys.has(keyOf(at))) {
    const after = at.nextSibling;
    at.remove();
    at = after;
  }
  return at;
}

/**
 * @param {Node} here
 * @param {Node} wanted
 */
function changeNode(here, wanted) {
  if (here instanceof Element && wanted instanceof Element) {
    changeAttributes(here, wanted);
    if (!here.matches(COPIES)) changeChildren(here, wanted);
  } else if (here.nodeValue !== wanted.nodeValue) {
    here.nodeValue = wanted.nodeValue;
  }
}

/**
 * @param {Element} here
 * @param {Element} wanted
 */
function changeAttributes(here, wanted) {
  const own = here.matches(COPIES) ? ["class"] : (OWN[here.nodeName] ?? []);
  const isChosen = here.classList.contains("chosen");
  for (const { name, value } of [...wanted.attributes]) {
    if (!own.includes(name) && here.getAttribute(name) !== value) here.setAttribute(name, value);
  }
  for (const { name } of [...here.attributes]) {
    if (!own.includes(name) && !wanted.hasAttribute(name) && !(name === "class" && isChosen)) here.removeAttribute(name);
  }
  if (isChosen) here.classList.add("chosen");
}
