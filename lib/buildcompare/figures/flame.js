// <build-flame> makes the flame graph inside it answer: a click or Enter on a frame shows it over the whole width, a word
// finds frames, and widths are those of either build. Frames stand in the SVG in the order of a walk from the root.

const LEAST = 0.0015; // part of the width: what is narrower is shown once its frame is

class BuildFlame extends HTMLElement {
  connectedCallback() {
    const picture = this.querySelector("svg.flame");
    if (!picture || this.frames) return;
    this.side = "new";
    this.picture = picture;
    this.row = Number(picture.getAttribute("height")) / (1 + Number(picture.dataset.depth));
    this.frames = [...picture.querySelectorAll("svg")].map((element) => ({
      element,
      name: element.querySelector("text").textContent,
      title: element.querySelector("title").textContent,
      depth: Number(element.dataset.depth),
      share: { base: Number(element.dataset.base), new: Number(element.dataset.new) },
      start: {},
    }));
    const above = [];
    for (const frame of this.frames) {
      frame.above = above[frame.depth - 1] ?? null;
      above[frame.depth] = frame;
      // What was too small to be drawn keeps its place in the new build's picture, and comes last in the base's.
      const left = frame.above ? frame.above.end ?? frame.above.start.base : 0;
      frame.start = { base: left, new: parseFloat(frame.element.getAttribute("x")) / 100 };
      if (frame.above) frame.above.end = left + frame.share.base;
    }
    picture.setAttribute("role", "tree");
    for (const { element, depth, title } of this.frames) {
      element.setAttribute("role", "treeitem");
      element.setAttribute("aria-level", depth + 1);
      element.setAttribute("aria-label", title);
    }
    this.tools(picture);
    this.zoom(this.frames[0]);
    const frameOf = (event) => this.frames.find(({ element }) => element === event.target.closest("svg.flame svg"));
    this.addEventListener("click", (event) => frameOf(event) && this.zoom(frameOf(event)));
    for (const kind of ["pointerover", "focusin"]) // not on the SVG, which would become a stop for the Tab key
      this.addEventListener(kind, (event) => frameOf(event) && (this.said.textContent = frameOf(event).title));
    this.addEventListener("keydown", (event) => this.key(event, frameOf(event)));
  }

  tools(picture) {
    const words = html("input", { type: "search" }), choose = html("select"), whole = html("button", { type: "button" }, "Whole profile");
    for (const side of ["new", "base"]) choose.append(html("option", { value: side }, this.getAttribute(side)));
    this.said = html("span", { role: "status" });
    words.addEventListener("input", () => this.find(words.value.toLowerCase()));
    choose.addEventListener("change", () => { this.side = choose.value; this.zoom(this.shown); });
    whole.addEventListener("click", () => this.zoom(this.frames[0]));
    const labelled = [html("label", {}, "Find ", words), html("label", {}, "Widths of ", choose), whole];
    picture.before(html("p", { class: "filter" }, ...labelled), html("p", { class: "note" }, this.said));
  }

  /** Show a frame over the whole width, what is above it too, and what is below it; a frame that this build lacks cannot be. */
  zoom(frame) {
    while (!frame.share[this.side]) frame = frame.above;
    this.shown = frame;
    const from = frame.start[this.side], width = frame.share[this.side], line = new Set();
    for (let each = frame; each; each = each.above) line.add(each);
    for (const each of this.frames) {
      const start = (each.start[this.side] - from) / width, part = each.share[this.side] / width;
      each.seen = line.has(each) || (part > LEAST && start > -1e-6 && start + part < 1 + 1e-5);
      each.element.style.display = each.seen ? "" : "none";
      each.element.setAttribute("x", line.has(each) ? "0%" : `${100 * start}%`);
      each.element.setAttribute("width", line.has(each) ? "100%" : `${100 * part}%`);
      each.element.querySelector("text").style.display = line.has(each) || part > 0.015 ? "" : "none";
      each.element.tabIndex = -1;
    }
    this.picture.setAttribute("height", this.row * (1 + Math.max(...this.frames.filter((each) => each.seen).map(({ depth }) => depth))));
    frame.element.tabIndex = 0;
    this.said.textContent = frame.title;
  }

  find(word) {
    let share = 0, count = 0;
    const inside = new Set();
    for (const frame of this.frames) {
      const fits = word !== "" && frame.name.toLowerCase().includes(word);
      frame.element.classList.toggle("match", fits);
      if (fits || inside.has(frame.above)) inside.add(frame);
      count += fits;
      if (fits && !inside.has(frame.above)) share += frame.share[this.side];
    }
    this.said.textContent = word === "" ? "" : `${count} frames, ${(100 * share).toFixed(1)} % of the samples`;
  }

  key(event, frame) {
    if (!frame) return;
    const seen = this.frames.filter((each) => each.seen), row = seen.filter(({ depth }) => depth === frame.depth);
    const moves = {
      ArrowUp: () => frame.above,
      ArrowDown: () => seen.find((each) => each.above === frame),
      ArrowLeft: () => row[row.indexOf(frame) - 1],
      ArrowRight: () => row[row.indexOf(frame) + 1],
      Home: () => seen[0],
    };
    if (event.key === "Enter" || event.key === " ") this.zoom(frame);
    else if (event.key === "Escape") this.zoom(this.frames[0]);
    else if (!moves[event.key]) return;
    event.preventDefault();
    const next = moves[event.key] ? moves[event.key]() : this.shown;
    if (!next) return;
    for (const each of seen) each.element.tabIndex = each === next ? 0 : -1;
    next.element.focus();
  }
}

if (!customElements.get("build-flame")) customElements.define("build-flame", BuildFlame);
