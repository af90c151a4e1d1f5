"use strict";
// Tables: a click (or Enter, or Space) on a heading sorts, a second turns the order round, a third restores the first.
const statusLine = document.getElementById("status");

function compare(one, other, kind) {
  if (kind === "number") {
    return Number(one.dataset.value) - Number(other.dataset.value);
  }
  const [name, against] = [one, other].map((cell) => pieces(cell.dataset.name ?? cell.textContent)); // without its letter
  for (let place = 0; place < Math.min(name.length, against.length); place++) {
    const order = comparePieces(name[place], against[place]);
    if (order) return order;
  }
  return name.length - against.length;
}

// Words, numbers and versions of a text: β = 0.25 comes before β = 0.5, 2.9.0 before 2.10.0, and 900 before 4,800.
function pieces(text) {
  return text.replace(/(\d),(?=\d{3}(?!\d))/g, "$1").split(/(\d+(?:\.\d+)*)/).filter((piece) => piece !== "");
}

function comparePieces(one, other) {
  if (![one, other].every((piece) => /^\d/.test(piece))) return one.localeCompare(other, "en");
  const [parts, others] = [one, other].map((piece) => piece.split("."));
  if (parts.length < 3 && others.length < 3) return Number(one) - Number(other);
  const place = parts.findIndex((part, number) => Number(part) !== Number(others[number]));
  return place < 0 ? parts.length - others.length : Number(parts[place]) - Number(others[place] ?? -1);
}

function sortTable(table, head) {
  const place = head.cellIndex, kind = head.dataset.kind;
  const orders = kind === "number" ? ["none", "descending", "ascending"] : ["none", "ascending", "descending"];
  const order = orders[(orders.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
  for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", order);
  table.classList.toggle("sorted", order !== "none");
  const known = (row) => {
    const cell = row.cells[place];
    if (row.cells.length < 2 || !cell || cell.colSpan > 1) return false;
    return kind === "number" ? "value" in cell.dataset : cell.textContent !== "–";
  };
  for (const [body, rows] of table.groupsInOrder) body.append(...rows);
  if (order !== "none") {
    const sign = order === "ascending" ? 1 : -1;
    const rows = table.groupsInOrder.flatMap(([, rows]) => rows);
    const full = rows.filter(known).sort((one, other) => sign * compare(one.cells[place], other.cells[place], kind));
    table.tBodies[0].append(...full, ...rows.filter((row) => !known(row)));
  }
  statusLine.textContent = order === "none" ? "first order" : "sorted by " + head.textContent + ", " + order;
}

for (const table of document.querySelectorAll("table")) {
  table.groupsInOrder = Array.from(table.tBodies, (body) => [body, Array.from(body.rows)]);
  for (const head of table.tHead.rows[0].cells) {
    head.querySelector("button").addEventListener("click", () => sortTable(table, head));
  }
}

// Paper shows everything: what is folded is opened, and folded again afterwards.
let folded = [];
addEventListener("beforeprint", () => {
  folded = Array.from(document.querySelectorAll("details:not([open])"));
  for (const part of folded) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of folded) part.open = false;
});

for (const choice of document.querySelectorAll("input[name=significance]")) {
  const follow = () => {
    if (choice.checked) document.documentElement.dataset.significance = choice.value;
  };
  choice.addEventListener("change", follow);
  follow(); // a browser that remembers the choice when the page is loaded again
}
