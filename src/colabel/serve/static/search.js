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
  const filters = chosenFilters();
  for (const one of filters) params.append("filter", one);
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
      const asked = new URLSearchParams({ query, ranker: part(side).value, k: 10 });
      for (const one of filters) asked.append("filter", one);
      found.push(await call("/api/search", { params: asked, signal: mine.signal }));
    }
    if (mine.signal.aborted) return;
    complain(null);
    show(found);
  } catch (error) {
    if (error.name !== "AbortError") complain(error);
  }
}

// Filters: a choice for a column with few values, the ends of a range for one of numbers.
function chosenFilters() {
  const fields = [...part("facets").querySelectorAll("select, input")];
  return fields.filter((one) => one.value !== "").map((one) => one.dataset.column + one.dataset.sign + one.value);
}

async function showFacets() {
  const wanted = given.getAll("filter");
  const { facets } = await call("/api/facets");
  for (const one of facets) {
    const fields = one.values.length ? [choice(one)] : [end(one, ">=", one.low), end(one, "<=", one.high)];
    for (const field of fields) {
      const held = wanted.find((text) => text.startsWith(field.dataset.column + field.dataset.sign));
      if (held) field.value = held.slice(field.dataset.column.length + field.dataset.sign.length);
      field.addEventListener("change", search);
    }
    const [first, ...others] = fields;
    part("facets").append(make("label", {}, `${one.column} `, first), ...others.flatMap((other) => ["to", other]));
  }
  part("facets").hidden = !facets.length;
}

function choice(one) {
  const options = one.values.map((held) => make("option", { value: held.name, textContent: `${held.name} (${held.value})` }));
  return held(make("select", {}, make("option", { value: "", textContent: "any" }), ...options), one, "=");
}

function end(one, sign, value) {
  const field = held(make("input", { type: "number", step: "any", placeholder: String(value) }), one, sign);
  field.setAttribute("aria-label", `${one.column} ${sign === ">=" ? "from" : "to"}`);
  return field;
}

function held(field, one, sign) {
  field.dataset.column = one.column;
  field.dataset.sign = sign;
  return field;
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
  part("status").textContent = `${first.hits.length} passage${first.hits.length === 1 ? "" : "s"}${same}, ${Math.round(1000 * seconds)} ms`;
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
  if (one.asked) foot.append(make("span", { textContent: `an answer to: ${one.asked}` }));
  for (const [name, value] of Object.entries(one.metadata).slice(0, 4)) {
    const shown = typeof value === "object" ? JSON.stringify(value) : String(value);
    foot.append(make("span", { textContent: `${name}: ${shown.slice(0, 60)}` }));
  }
  const item = make("li", { className: "hit" }, head, text, foot);
  item.dataset.passage = one.passage_id;
  text.addEventListener("click", () => item.classList.toggle("whole"));
  if (one.text.reduce((sum, part) => sum + part.text.length, 0) <= 140) return item;
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
showFacets().catch(complain).finally(search);
