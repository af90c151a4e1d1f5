// Search as you type, with one ranker or two side by side.

import { call, callName, complain, fill, judge, make, say, typing } from "/static/common.js";

const part = (id) => document.getElementById(id);
const sides = ["first", "second"];
let running = null;
let timer;

async function search() {
  const query = part("query").value.trim();
  const params = new URLSearchParams();
  if (query) params.set("q", query);
  for (const side of sides) if (part(side).value) params.set(side, part(side).value);
  history.replaceState(null, "", params.size ? `?${params}` : location.pathname);
  running?.abort();
  part("results").hidden = !query;
  part("hint").hidden = Boolean(query);
  if (!query) {
    part("status").textContent = "";
    return;
  }
  const mine = (running = new AbortController());
  try {
    const asked = sides.filter((side) => part(side).value);
    const found = [];
    for (const side of asked) {
      found.push(await call("/api/search", { params: { query, ranker: part(side).value, k: 10 }, signal: mine.signal }));
    }
    if (mine.signal.aborted) return;
    complain(null);
    show(found);
  } catch (error) {
    if (error.name !== "AbortError") complain(error);
  }
}

function show(found) {
  const [first, second] = found;
  part("results").classList.toggle("two", Boolean(second));
  part("second-side").hidden = !second;
  render("first", first, second);
  if (second) render("second", second, first);
  const shared = second ? first.hits.filter((one) => place(second, one.passage_id)).length : 0;
  const seconds = found.reduce((sum, one) => sum + one.seconds, 0);
  const same = second ? `, ${shared} in both` : "";
  part("status").textContent = `${first.hits.length} passages${same}, ${Math.round(1000 * seconds)} ms`;
}

function place(found, id) {
  return found.hits.find((one) => one.passage_id === id)?.rank ?? 0;
}

function render(side, found, other) {
  part(`${side}-head`).textContent = part(side).selectedOptions[0].textContent;
  part(`${side}-hits`).replaceChildren(...found.hits.map((one) => hit(one, found, other)));
  if (!found.hits.length) part(`${side}-hits`).append(make("li", { className: "muted", textContent: "Nothing was found." }));
}

function hit(one, found, other) {
  const title = one.title.length ? fill(make("h3"), one.title) : make("h3", { textContent: one.passage_id });
  const head = make("div", { className: "head" }, make("span", { className: "place", textContent: one.rank }), title);
  if (other) head.append(make("span", { className: "moved", textContent: moved(one, other) }));
  const text = fill(make("p", { className: "text" }), one.text);
  const foot = make("div", { className: "foot" });
  for (const [answer, word] of [["yes", "Relevant"], ["no", "Not relevant"]]) {
    const button = make("button", { type: "button", textContent: word });
    button.setAttribute("aria-pressed", String(one.verdict === (answer === "yes")));
    button.setAttribute("aria-label", `${word}: ${one.passage_id}`);
    button.addEventListener("click", () => give(found, one, answer));
    foot.append(button);
  }
  if (one.label !== null) foot.append(make("span", { className: "badge", textContent: `labelled ${one.label}` }));
  foot.append(make("span", { textContent: one.passage_id }), make("span", { textContent: one.score.toFixed(2) }));
  if (one.probability !== null) foot.append(make("span", { textContent: `${Math.round(100 * one.probability)} % likely` }));
  for (const [name, value] of Object.entries(one.metadata).slice(0, 4)) {
    const shown = typeof value === "object" ? JSON.stringify(value) : String(value);
    foot.append(make("span", { textContent: `${name}: ${shown.slice(0, 60)}` }));
  }
  const item = make("li", { className: "hit" }, head, text, foot);
  item.dataset.passage = one.passage_id;
  text.addEventListener("click", () => item.classList.toggle("whole"));
  const more = make("button", { type: "button", className: "plain", textContent: "All of it" });
  more.setAttribute("aria-label", `All of ${one.passage_id}`);
  more.addEventListener("click", () => item.classList.toggle("whole"));
  foot.append(more);
  return item;
}

function moved(one, other) {
  const there = place(other, one.passage_id);
  if (!there) return "only here";
  const by = there - one.rank;
  return by === 0 ? "same place" : by > 0 ? `▲ ${by}` : `▼ ${-by}`;
}

async function give(found, one, answer) {
  const body = { judge: judge(), passage_id: one.passage_id, query: found.query, answer, call: callName() };
  try {
    await call("/api/verdicts", { body });
    complain(null);
    say(`Kept: ${answer === "yes" ? "relevant" : "not relevant"}.`);
    await search();
  } catch (error) {
    complain(error);
  }
}

const given = new URLSearchParams(location.search);
part("query").value = given.get("q") ?? "";
for (const side of sides) {
  const wanted = given.get(side);
  if (wanted && [...part(side).options].some((one) => one.value === wanted)) part(side).value = wanted;
  part(side).addEventListener("change", search);
}
part("query").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(search, 150);
});
part("form").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  search();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || typing(event)) return;
  event.preventDefault();
  part("query").select();
});
search();
