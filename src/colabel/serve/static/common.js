// What all pages share: the judge's name, calls of the API, marked text, and messages that screen readers hear.

const field = document.getElementById("judge");
const KEY = "colabel-judge";

field.value = localStorage.getItem(KEY) || document.body.dataset.judge;
field.addEventListener("change", () => {
  if (!field.value.trim()) field.value = document.body.dataset.judge;
  localStorage.setItem(KEY, field.value.trim());
  document.dispatchEvent(new Event("judge"));
});

export function judge() {
  return field.value.trim();
}

export class Refused extends Error {}

// One call. Its answer as JSON; a sentence in a Refused where the server says no, and where there is no server.
export async function call(path, { params, body, signal } = {}) {
  const query = params ? `?${new URLSearchParams(params)}` : "";
  const options = body
    ? { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal }
    : { signal };
  let answer;
  try {
    answer = await fetch(path + query, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer. Is colabel serve still running?");
  }
  const found = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
  if (!answer.ok) throw new Refused(found.error);
  return found;
}

// A name for a call, so that it can be repeated without being counted twice.
export function callName() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) => one.toString(16).padStart(2, "0")).join("");
}

// Segments of a text as nodes: nothing in a text is ever read as markup.
export function fill(element, segments) {
  element.replaceChildren(
    ...segments.map((one) => {
      if (!one.mark) return document.createTextNode(one.text);
      return make("mark", { className: `m of-${one.mark} s${one.strength}`, textContent: one.text });
    }),
  );
  return element;
}

export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

let hide;
export function say(text) {
  const toast = document.getElementById("toast");
  toast.textContent = text;
  toast.classList.add("shown");
  clearTimeout(hide);
  hide = setTimeout(() => toast.classList.remove("shown"), 2500);
}

export function complain(error) {
  const place = document.getElementById("failure");
  place.textContent = error ? error.message : "";
  place.hidden = !error;
}

export function typing(event) {
  return event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea") !== null;
}
