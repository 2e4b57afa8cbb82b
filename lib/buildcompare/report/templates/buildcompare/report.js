// Label tables can be filtered and sorted. Without JavaScript they are whole, what moved most first.
for (const table of document.querySelectorAll("table.labels")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const box = document.createElement("p");
  box.className = "filter";
  box.innerHTML =
    '<label>Filter <input type="search"></label> <label><input type="checkbox"> only marked rows</label> <span role="status"></span>';
  const [words, marked] = box.querySelectorAll("input");
  const filter = () => {
    const wanted = words.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = row.cells[0].textContent.toLowerCase().includes(wanted);
      row.hidden = !fits || (marked.checked && !row.querySelector(".status"));
      shown += row.hidden ? 0 : 1;
    }
    box.querySelector("span").textContent = shown + " of " + rows.length + " rows";
  };
  words.addEventListener("input", filter);
  marked.addEventListener("change", filter);
  table.closest(".scroll").before(box);
  filter();

  const value = (row, column) => {
    const cell = row.cells[column];
    if (column === 0) return cell.textContent.toLowerCase();
    return cell && cell.dataset.v ? Number(cell.dataset.v) : null;
  };
  const heads = [table.tHead.rows[0].cells[0], ...table.tHead.rows[1].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === (column ? "descending" : "ascending");
      const sign = (column === 0) === down ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      rows.sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        if (x === null || y === null) return (x === null) - (y === null);
        return sign * (x < y ? -1 : x > y ? 1 : 0);
      });
      body.append(...rows);
    });
  });
}

// A table or figure that is wider than the screen is a stop for the Tab key, so that arrow keys scroll it; one that
// fits is none. Without JavaScript every one is.
const fits = new ResizeObserver((seen) => {
  for (const { target } of seen) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else if (target !== document.activeElement) target.removeAttribute("tabindex");
  }
});
document.querySelectorAll(".scroll").forEach((region) => fits.observe(region));

// A link to something that is folded unfolds it.
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let each = target; each; each = each.parentElement) if (each.localName === "details") each.open = true;
  target?.scrollIntoView();
};
window.addEventListener("hashchange", unfold);
if (location.hash) unfold();
document.querySelectorAll('a[href^="#"]').forEach((link) => link.addEventListener("click", () => link.hash === location.hash && unfold()));
