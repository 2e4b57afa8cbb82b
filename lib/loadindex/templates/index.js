
"use strict";
(() => {
  const table = document.getElementById("releases");
  if (!table) return;
  const body = table.tBodies[0];
  // What a keyboard has for what the page shows: a hyphen for a minus sign, a space for one that does not break.
  const typed = (text) => text.normalize("NFKC").toLowerCase().replace(/[\u2212\u2010-\u2013]/g, "-");
  const rows = [...body.rows].map((row) => ({
    row,
    text: typed(row.textContent + " " + (row.dataset.words || "")),
    keys: [...row.cells].map((cell) => Number(cell.dataset.sort)),
  }));
  const shown = document.getElementById("shown");
  const search = document.getElementById("search");
  const filter = () => {
    const words = typed(search.value).split(/\s+/).filter(Boolean);
    let count = 0;
    for (const each of rows) {
      const found = words.every((word) => each.text.includes(word));
      each.row.hidden = !found;
      count += found ? 1 : 0;
    }
    shown.textContent = count + " of " + rows.length;
  };
  search.addEventListener("input", filter);
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (rows.length && Number.isNaN(rows[0].keys[column])) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      // Where a column says the same, the newest comes first, whatever was sorted before.
      rows.sort((a, b) => (up ? 1 : -1) * (a.keys[column] - b.keys[column]) || a.keys[0] - b.keys[0]);
      body.append(...rows.map((each) => each.row));
    });
  });
  document.getElementById("tools").hidden = false;
  filter();
})();

// Of all charts of a chain one is shown, that of the test and metric chosen. Without JavaScript the pictures stand.
for (const section of document.querySelectorAll(".levels")) {
  const figures = [...section.querySelectorAll("figure")];
  const [test, metric] = section.querySelectorAll("select");
  const fill = (select, names) => {
    const before = select.value;
    select.replaceChildren(...[...new Set(names)].map((name) => new Option(name, name)));
    if (names.includes(before)) select.value = before;
  };
  const show = () => {
    const own = figures.filter((each) => each.dataset.test === test.value);
    fill(metric, own.map((each) => each.dataset.metric));
    for (const each of figures) each.hidden = !own.includes(each) || each.dataset.metric !== metric.value;
  };
  fill(test, figures.map((each) => each.dataset.test));
  test.addEventListener("change", show);
  metric.addEventListener("change", show);
  section.querySelectorAll(".choices").forEach((each) => (each.hidden = false));
  window.addEventListener("pageshow", show); // who comes back finds what was chosen
  show();
}
