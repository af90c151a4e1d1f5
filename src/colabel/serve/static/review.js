// The review: one pair after another. A verdict is on the server's disk before the next pair appears.

import { call, callName, complain, fill, judge, make, say, typing } from "/static/common.js";

const part = (id) => document.getElementById(id);
const WORDS = { yes: "relevant", no: "not relevant", unsure: "unsure" };
const seen = []; // pairs that were judged here, to show one again when its verdict is taken back
const skipped = new Set();
let pair = null;
let busy = false;
let again = false; // the queue is to be asked again once what is under way is done
const settling = new URLSearchParams(location.search).get("queue") === "disagreements";
let pending = null; // a verdict whose answer got lost, to be sent again under the same name

async function work(action) {
  if (busy) return;
  busy = true;
  part("pair").setAttribute("aria-busy", "true");
  try {
    await action();
    complain(null);
  } catch (error) {
    complain(error);
  } finally {
    busy = false;
    part("pair").setAttribute("aria-busy", "false");
  }
  if (again) reload();
}

function reload() {
  again = busy;
  if (!busy) work(next);
}

async function next() {
  const params = new URLSearchParams({ judge: judge(), find: part("find").value });
  if (settling) params.set("queue", "disagreements");
  for (const one of skipped) params.append("skip", one);
  const found = await call("/api/suggestions", { params });
  const left = count(found.left, settling ? "disagreement" : "suggestion");
  part("progress").textContent = `${count(found.judged, "verdict")} by you · ${left} ${settling ? "to settle" : "left"}`;
  show(found.pairs[0] ?? null, found.why);
}

function count(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

function show(found, why = "") {
  pair = found;
  for (const id of ["pair", "actions"]) part(id).hidden = !pair;
  part("empty").hidden = Boolean(pair);
  if (!pair) {
    part("why").textContent = why;
    return;
  }
  fill(part("query"), pair.query);
  part("candidate").replaceChildren(...passage(pair.candidate));
  part("reasons").replaceChildren(...pair.reasons.map(reason));
  part("ranks").replaceChildren(
    ...pair.ranks.map((one) =>
      make(
        "div",
        {},
        make("dt", { textContent: one.system }),
        make("dd", { textContent: one.rank ?? `beyond ${one.of.toLocaleString("en")}` }),
      ),
    ),
  );
  part("said").hidden = !pair.said.length;
  part("said").replaceChildren(...pair.said.map(said));
  part("labelled").replaceChildren(...pair.labelled.map(labelled));
  const more = pair.labels - pair.labelled.length;
  part("more-labels").textContent = pair.labels ? (more ? `and ${more} more` : "") : "No passage is labelled for this query.";
  part("candidate").scrollTop = 0;
  window.scrollTo(0, 0);
}

function passage(one) {
  const title = one.title.length ? [fill(make("h4"), one.title)] : [];
  return [...title, fill(make("p"), one.text), make("div", { className: "id", textContent: one.passage_id })];
}

function labelled(one) {
  const box = make("div", { className: "passage" }, ...passage(one));
  if (one.text.reduce((sum, part) => sum + part.text.length, 0) > 420) {
    const more = make("button", { type: "button", textContent: "Show all of it" });
    more.setAttribute("aria-expanded", "false");
    more.addEventListener("click", () => {
      const whole = box.classList.toggle("whole");
      more.textContent = whole ? "Show less" : "Show all of it";
      more.setAttribute("aria-expanded", String(whole));
    });
    box.append(more);
  }
  return box;
}

function said(one) {
  const word = one.grade === null ? WORDS[one.answer] : `grade ${one.grade}`;
  return make("li", {}, make("em", { textContent: one.judge }), `: ${word}${one.reason ? ` (${one.reason})` : ""}`);
}

function reason(one) {
  const line = make("li", {}, one.before);
  one.words.forEach((word, place) => {
    line.append(place ? ", " : " ", make("em", { textContent: word }));
  });
  line.append(one.after ? ` ${one.after}` : "");
  return line;
}

function give(verdict) {
  if (!pair) return;
  const said = "grade" in verdict ? `grade ${verdict.grade}` : WORDS[verdict.answer];
  work(async () => {
    const judged = pair;
    const body = { judge: judge(), query_id: judged.query_id, passage_id: judged.candidate.passage_id, ...verdict };
    const same = pending && JSON.stringify(pending.body) === JSON.stringify(body);
    pending = same ? pending : { body, name: callName() };
    const kept = await call("/api/verdicts", { body: { ...body, call: pending.name } });
    pending = null;
    seen.push(judged);
    await next();
    say(`Kept: ${said}.${kept.rescored ? " Suggestions are ordered again." : ""}`);
  });
}

function undo() {
  work(async () => {
    const { undone } = await call("/api/verdicts/undo", { body: { judge: judge() } });
    if (!undone) {
      say("There is nothing to undo.");
      return;
    }
    const last = seen.pop();
    const same = last && last.query_id === undone.query_id && last.candidate.passage_id === undone.passage_id;
    await next();
    if (same) show(last);
    say(`Taken back: ${undone.grade === null ? WORDS[undone.answer] : `grade ${undone.grade}`}.`);
  });
}

function skip() {
  if (!pair) return;
  work(async () => {
    skipped.add(pair.query_id);
    if (skipped.size > 200) skipped.delete(skipped.values().next().value);
    await next();
    say("Query skipped.");
  });
}

const KEYS = { y: () => give({ answer: "yes" }), n: () => give({ answer: "no" }), u: () => give({ answer: "unsure" }), z: undo, s: skip };
for (const grade of [0, 1, 2, 3]) KEYS[grade] = () => give({ grade });
KEYS["/"] = () => part("find").focus();

document.addEventListener("keydown", (event) => {
  if (typing(event) || event.repeat || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});
part("actions").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.answer) give({ answer: button.dataset.answer });
  else if (button?.dataset.grade) give({ grade: Number(button.dataset.grade) });
});
part("skip").addEventListener("click", skip);
part("undo").addEventListener("click", undo);
part("find-form").addEventListener("submit", (event) => {
  event.preventDefault();
  part("find").blur();
  reload();
});
part("find").addEventListener("search", () => {
  if (!part("find").value) reload();
});
part("find").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  part("find").value = "";
  part("find").blur();
  reload();
});
document.addEventListener("judge", reload);
reload();
