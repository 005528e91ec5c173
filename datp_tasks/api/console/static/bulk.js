/** Bulk actions: the button works once the count is typed and a reason is written. */

export function startBulk() {
  const form = document.getElementById("bulk-form");
  if (!(form instanceof HTMLFormElement)) return;
  const count = form.elements.namedItem("count");
  const reason = form.elements.namedItem("reason");
  const button = form.querySelector("button[type=submit]");
  if (!(count instanceof HTMLInputElement) || !(reason instanceof HTMLTextAreaElement)) return;
  if (!(button instanceof HTMLButtonElement)) return;
  const check = () => {
    const typed = count.value.replaceAll(",", "").trim();
    button.disabled = typed !== form.dataset.count || !reason.value.trim();
  };
  form.addEventListener("input", check);
  check();
}
