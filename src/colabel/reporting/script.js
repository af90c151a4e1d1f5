"use strict";
// Tables: a click (or Enter, or Space) on a heading sorts, a second turns the order round, a third restores the first.
const told = document.getElementById("told");

function compare(one, other, kind) {
  if (kind === "number") {
    return Number(one.dataset.value) - Number(other.dataset.value);
  }
  const name = (cell) => cell.dataset.name ?? cell.textContent; // without its letter
  return name(one).localeCompare(name(other), "en", { numeric: true });
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
    return row.cells.length > 1 && cell && cell.colSpan === 1 && (kind !== "number" || "value" in cell.dataset);
  };
  const rows = table.rowsInOrder.slice();
  if (order !== "none") {
    const sign = order === "ascending" ? 1 : -1;
    const full = rows.filter(known).sort((one, other) => sign * compare(one.cells[place], other.cells[place], kind));
    rows.splice(0, rows.length, ...full, ...table.rowsInOrder.filter((row) => !known(row)));
  }
  table.tBodies[0].append(...rows);
  told.textContent = order === "none" ? "first order" : "sorted by " + head.textContent + ", " + order;
}

for (const table of document.querySelectorAll("table")) {
  table.rowsInOrder = Array.from(table.tBodies[0].rows);
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
