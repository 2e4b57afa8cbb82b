// <build-intervals> draws the rows of an interval plot that benchmarks.py packed: places are parts of the axis. A row tells
// its numbers under the pointer and by arrow keys. Until it is drawn, and in print, the picture before it stands.

class BuildIntervals extends HTMLElement {
  connectedCallback() {
    if (this.shadowRoot) return;
    const { title, axis, ticks, one, rows } = JSON.parse(this.getAttribute("intervals"));
    const part = (kind, left, width = 0) => html("i", { class: kind, style: `left: ${100 * left}%; width: ${100 * width}%` });
    const line = (kind, name, change, ...marks) => html("div", { class: `row ${kind}` }, html("span", {}, name), html("span", { class: "track" }, ...marks), html("span", {}, change));
    this.rows = rows;
    this.lines = rows.map(({ name, change, at, span, status }) => {
      const grid = ticks.map(([place]) => part("tick", place));
      return line(status, name, change, ...grid, part("one", one), ...(span ? [part("span", span[0], span[1] - span[0])] : []), part(span ? "point" : "point open", at));
    });
    const places = ticks.map(([place, text]) => html("i", { class: "place", style: `left: ${100 * place}%` }, text));
    this.plot = html("div", { class: "plot", tabindex: 0, role: "slider", "aria-label": `${title}: row`, "aria-valuemin": 1, "aria-valuemax": rows.length });
    rows.forEach(({ task }, i) => {
      if (task && task !== rows[i - 1]?.task) this.plot.append(html("p", { class: "soft" }, task));
      this.plot.append(this.lines[i]);
    });
    this.plot.append(line("places", "", "", ...places));
    // All that it may say stands in one place, so that the rows below keep theirs, whatever is said.
    this.readout = html("p", { class: "readout stacked" }, ...rows.map(({ said }) => html("span", {}, said)));
    const shown = html("div", { class: "live" }, html("p", { class: "title" }, title), this.readout, this.plot, html("p", { class: "hint" }, axis));
    this.attachShadow({ mode: "open" }).append(html("style", {}, STYLE), shown, html("slot"));
    this.plot.addEventListener("pointermove", (event) => this.point(this.lines.indexOf(event.target.closest(".row"))));
    this.plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.point(-1));
    this.plot.addEventListener("blur", () => this.point(-1));
    this.plot.addEventListener("keydown", (event) => {
      const last = rows.length - 1, step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (!step && event.key !== "Home" && event.key !== "End") return;
      this.point(step ? clamp((this.at < 0 && step < 0 ? rows.length : this.at) + step, 0, last) : event.key === "Home" ? 0 : last);
      event.preventDefault();
      event.stopPropagation(); // notebooks have commands of one letter
    });
    this.point(-1);
    this.toggleAttribute("ready", true);
  }

  /** Say the numbers of a row; of none where `at` is below 0. */
  point(at) {
    this.at = at;
    this.lines.forEach((line, i) => line.classList.toggle("at", i === at));
    [...this.readout.children].forEach((said, i) => said.classList.toggle("at", i === at));
    this.plot.setAttribute("aria-valuenow", Math.max(at + 1, 1));
    this.plot.setAttribute("aria-valuetext", this.rows[at]?.said ?? "no row chosen");
  }
}

if (!customElements.get("build-intervals")) customElements.define("build-intervals", BuildIntervals);
