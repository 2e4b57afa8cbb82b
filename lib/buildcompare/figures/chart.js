// Two elements. <build-chart> draws one metric of both builds, over a run, over loads or over releases; all charts of one
// `group` (a test, a test at equal load, a ledger) share cursor, zoom and choices. <build-tools> makes the choices. Until a chart has been drawn, and in
// print, the picture inside it stands.
// STYLE is chart.css; the attribute `data` is what chart.py packed.

const SIDES = ["base", "new"];
const AXES = {
  elapsed: { choice: "Elapsed time", label: "elapsed time, minutes", unit: "min" },
  ramp: { choice: "Time from the ramp's start", label: "minutes from the ramp's start", unit: "min" },
  users: { choice: "Connected users", label: "connected users", unit: "users" },
};
const RELEASES = { label: "releases, oldest first", unit: "Release" }; // the only axis of charts that have `releases`
const HINT =
  "Drag to zoom all charts of this test, double-click to go back. Keys: arrows move the cursor, + and − zoom, 0 goes back.";
const RELEASES_HINT =
  "Click a point to open its report. Drag to zoom, double-click to go back. Keys: arrows move the cursor, Enter opens the report, + and − zoom, 0 goes back.";
const LEFT = 58, RIGHT = 10, TOP = 18, HEIGHT = 190; // pixels around and of the curves
const BINS = 40; // over the connected users
const DOTS = 150; // of a build over releases; where more are shown, the line is enough

// ---- Small helpers --------------------------------------------------------------------------------------------------

const maker = (space) => (tag, attributes = {}, ...children) => {
  const made = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const html = maker("http://www.w3.org/1999/xhtml");
const svg = maker("http://www.w3.org/2000/svg");

/** Four significant digits, and every digit before the point; ticks of an axis (`least` 1) without zeros at their end. */
function written(value, least = 4) {
  const small = Math.abs(value) < 1000 && value !== 0;
  const digits = small ? { minimumSignificantDigits: least, maximumSignificantDigits: 4 } : { maximumFractionDigits: 0 };
  return value.toLocaleString("en-US", digits).replace("-", "−");
}
function changed(percent) {
  const text = Math.abs(percent).toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  return `${/[1-9]/.test(text) ? (percent < 0 ? "−" : "+") : ""}${text} %`;
}
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** The smallest of 1, 2, 5 (of minutes also 15, 30, 60 ...) times a power of ten that is at least `step`. */
function niceStep(step, minutes) {
  const hours = [10, 15, 20, 30, 60, 120, 180, 240, 360, 720, 1440];
  if (minutes && step > 5 && step <= 1440) return hours.find((each) => each >= step);
  const power = 10 ** Math.floor(Math.log10(step));
  return [1, 2, 5, 10].find((each) => each * power >= step * 0.999) * power;
}

function ticks(low, high, count, minutes) {
  const step = niceStep((high - low) / count, minutes);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9) + 0; i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found;
}

/** The header of a packed chart; each run gets its `seconds` and `values`. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const size = new DataView(buffer).getUint32(0, true);
  const chart = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  let place = 4 + size;
  const floats = (count) => new Float32Array(buffer, (place += 4 * count) - 4 * count, count);
  for (const run of chart.runs) {
    run.key = `${run.side} ${run.run}`;
    run.values = floats(run.size);
    run.seconds = run.timed ? floats(run.size) : Float32Array.from(run.values, (_, i) => run.start + i * run.step);
    run.means = run.minutes ? floats(run.minutes) : null; // of a thinned run
    run.most = run.values.reduce((most, value) => (Math.abs(value) > most ? Math.abs(value) : most), 0);
    run.points = {};
    if (!chart.loads) continue;
    run.halves = floats(run.size);
    run.cloud = [floats(run.cloud), floats(run.cloud)]; // users and values
  }
  chart.bin = niceStep(Math.max(...chart.runs.flatMap((run) => run.users), 1) / BINS);
  for (const run of chart.runs) run.bin = chart.bin;
  return chart;
}

// ---- What all charts of one test share ------------------------------------------------------------------------------

class Group {
  static all = new Map();
  static of(name) {
    if (!Group.all.has(name)) Group.all.set(name, new Group());
    return Group.all.get(name);
  }
  members = new Set();
  chart = null; // the first that was unpacked
  axis = "elapsed";
  range = null; // what is zoomed to, in units of the axis; null: everything
  hidden = new Set(); // keys of runs
  at = null; // where the cursor is
  change(what) {
    Object.assign(this, what);
    this.members.forEach((each) => each.draw());
  }
  point(at) {
    this.at = at;
    this.members.forEach((each) => each.mark());
  }
}

// ---- A run's samples on each axis -----------------------------------------------------------------------------------

/** `x` rising, `y`; the cursor shows a point within its `reach`, and a line ends at a `gap`. */
function pointsOf(run, axis) {
  if (axis === "users") return (run.points[axis] ??= overUsers(run));
  if (axis === "loads") return (run.points[axis] ??= { x: run.seconds, y: run.values, reach: run.step, gap: Infinity });
  return (run.points[axis] ??= axis === "releases" ? overReleases(run) : overTime(run, axis === "ramp" ? run.onset : 0));
}

/** The releases that have a level: a line leads over the others. */
function overReleases({ values }) {
  const x = [...values.keys()].filter((i) => !Number.isNaN(values[i]));
  return { x, y: x.map((i) => values[i]), reach: 0.5, gap: Infinity };
}

function overTime(run, start) {
  const x = Float64Array.from(run.seconds, (second) => (second - start) / 60);
  const gap = (run.thinned ? 2 : 1.5) * run.step / 60; // a thinned run has its points anywhere in a step
  return { x, y: run.values, reach: gap / 2, gap };
}

/** Means over the minutes of the run that had about the same number of users. */
function overUsers(run) {
  const sums = new Map();
  (run.means ?? run.values).forEach((value, i) => {
    const second = run.means ? 60 * i : run.seconds[i];
    const users = second < run.until ? run.users[Math.floor(second / 60)] : undefined;
    if (users == null || Number.isNaN(value)) return;
    const bin = Math.round(users / run.bin) * run.bin;
    const [sum, count] = sums.get(bin) ?? [0, 0];
    sums.set(bin, [sum + value, count + 1]);
  });
  const bins = [...sums].sort(([a], [b]) => a - b);
  return { x: bins.map(([bin]) => bin), y: bins.map(([, [sum, n]]) => sum / n), reach: 0.5 * run.bin, gap: Infinity };
}

/** By what factor the ends of an interval lie away from the i-th point of a run: of a load, or of the release there. */
function spread(run, place, i) {
  if (run.halves) return Math.exp(run.halves[i]);
  return run.half ? Math.exp(run.half / Math.sqrt(run.counts?.[place] ?? 1)) : 1;
}
const cutShort = (name) => (name.length > 12 ? `${name.slice(0, 11)}…` : name);

function nearest({ x }, at) {
  let low = 0, high = x.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low > 0 && at - x[low - 1] < x[low] - at ? low - 1 : low;
}

function valueAt(points, at) {
  if (!points.x.length) return null;
  const i = nearest(points, at);
  return Math.abs(points.x[i] - at) <= points.reach && !Number.isNaN(points.y[i]) ? points.y[i] : null;
}

/** Path of the points between `low` and `high`; per pixel no more than the smallest and the largest value. */
function path({ x, y, gap }, low, high, across, up) {
  const first = Math.max(nearest({ x }, low) - 1, 0);
  const last = Math.min(nearest({ x }, high) + 1, x.length - 1);
  const parts = [];
  let pen = "M", before = null, pixel = null, least, most;
  const put = (i) => {
    parts.push(pen + across(x[i]).toFixed(1) + " " + up(y[i]).toFixed(1));
    pen = "L";
  };
  const flush = () => {
    if (pixel === null) return;
    put(Math.min(least, most));
    if (least !== most) put(Math.max(least, most));
    pixel = null;
  };
  for (let i = first; i <= last; i++) {
    const missing = Number.isNaN(y[i]);
    if (missing || (before !== null && x[i] - before > gap)) {
      flush();
      pen = "M";
    }
    before = x[i];
    if (missing) continue;
    const at = Math.round(across(x[i]));
    if (at !== pixel) {
      flush();
      [pixel, least, most] = [at, i, i];
    }
    if (y[i] < y[least]) least = i;
    if (y[i] > y[most]) most = i;
  }
  flush();
  return parts.join("");
}

// ---- A chart --------------------------------------------------------------------------------------------------------

class BuildChart extends HTMLElement {
  connectedCallback() {
    this.group = Group.of(this.getAttribute("group"));
    if (!this.shadowRoot) {
      this.attachShadow({ mode: "open" }).append(html("style", {}, STYLE), html("slot"));
      const chosen = document.querySelector(`build-tools[group="${CSS.escape(this.getAttribute("group"))}"]`);
      if (this.hasAttribute("tools") && !chosen) this.shadowRoot.prepend(html("build-tools", { group: this.getAttribute("group"), hint: "" }));
    }
    if (this.chart) return void this.group.members.add(this);
    inView.observe(this);
    this.tabIndex = 0; // so that the Tab key does not pass what is not drawn yet
    this.addEventListener("focus", () => this.build(), { once: true });
  }

  disconnectedCallback() {
    inView.unobserve(this);
    this.group.members.delete(this);
  }

  async build() {
    if (this.building) return;
    this.building = true;
    try {
      this.chart = await unpacked(this.getAttribute("data"));
    } catch {
      return this.removeAttribute("tabindex"); // a browser without DecompressionStream: the picture stands
    }
    const { title, alt, name } = this.chart;
    this.plot = html("div", { class: "plot", tabindex: 0, role: "slider", "aria-label": `${name}: cursor` });
    this.readout = html("p", { class: "readout" });
    this.table = html("div", { class: "table", tabindex: 0, role: "group", "aria-label": `${name}: values` });
    this.details = html("details", {}, html("summary", {}, "Values as a table"), this.table);
    this.shadowRoot.append(
      html("div", { class: "live", role: "group", "aria-label": alt },
        html("p", { class: "title" }, title), this.readout, this.plot, this.details),
    );
    this.details.addEventListener("toggle", () => this.fill());
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.plot);
    this.group.members.add(this);
    this.toggleAttribute("ready", true);
    if (this.group.chart) this.draw();
    else this.group.change({ chart: this.chart });
    const focused = document.activeElement === this;
    this.removeAttribute("tabindex");
    if (focused) this.plot.focus();
  }

  get axis() { return this.chart.releases ? "releases" : this.chart.loads ? "loads" : this.group.axis; }
  get timed() { return this.axis === "elapsed" || this.axis === "ramp"; }
  get shown() { return this.chart.runs.filter((run) => !this.group.hidden.has(run.key)); }

  /** Shift of a run's elapsed seconds on an axis of time; null on the axis of users. */
  start(run) { return { elapsed: 0, ramp: run.onset, users: null }[this.axis]; }

  /** The same for every chart of a test, so that they stand under each other. */
  extent() {
    const { runs, releases, loads } = this.chart;
    if (releases) return [-0.5, releases.length - 0.5];
    if (loads) return [0, 1.05 * loads.most];
    if (this.axis === "users") return [0, Math.max(...runs.flatMap((run) => run.users), 1) + this.chart.bin];
    const ends = runs.map((run) => [-this.start(run) / 60, (run.duration - this.start(run)) / 60]);
    return [Math.min(...ends.map(([low]) => low)), Math.max(...ends.map(([, high]) => high))];
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width || !this.chart.runs.length) return;
    const [low, high] = (this.range = this.group.range ?? this.extent());
    const right = width - RIGHT, bottom = TOP + HEIGHT;
    const across = (this.across = (x) => LEFT + ((x - low) / (high - low)) * (right - LEFT));
    this.back = (pixel) => clamp(low + ((pixel - LEFT) / (right - LEFT)) * (high - low), low, high);
    let [least, most] = [Infinity, -Infinity];
    for (const run of this.shown) {
      const { x, y } = pointsOf(run, this.axis);
      y.forEach((value, i) => {
        if (x[i] < low || x[i] > high || Number.isNaN(value)) return;
        const factor = run.halves ? 1 : spread(run, x[i], i); // a band may be wider than the picture
        [least, most] = [Math.min(least, value / factor), Math.max(most, value * factor)];
      });
      run.cloud?.[1].forEach((value, i) => {
        if (run.cloud[0][i] >= low && run.cloud[0][i] <= high) [least, most] = [Math.min(least, value), Math.max(most, value)];
      });
    }
    if (least > most) [least, most] = [0, 1];
    // The whole run stands on zero, as in the picture; who zooms in looks at differences.
    const pad = 0.06 * (most - least || Math.abs(most) || 1);
    const [floor, top] = this.group.range ? [least - pad, most + pad] : [Math.min(0, least), Math.max(most + pad, 1e-9)];
    const up = (this.up = (y) => bottom - ((y - floor) / (top - floor)) * HEIGHT);

    const strip = this.chart.wide ? 14 : 4; // height of a build's phases
    const phased = !this.timed ? [] : SIDES.map((side) => this.shown.find((run) => run.side === side)).filter(Boolean);
    const foot = bottom + 3 + phased.length * (strip + 1);
    const total = TOP + HEIGHT + 3 + 2 * (strip + 1) + 34;
    const cut = (height) =>
      svg("svg", { x: LEFT, width: right - LEFT, height, viewBox: `${LEFT} 0 ${right - LEFT} ${height}`, style: "overflow: hidden" });
    const windows = cut(total), clip = cut(total), curves = cut(bottom);
    const drawn = svg("svg", { viewBox: `0 0 ${width} ${total}`, height: total, "aria-hidden": "true" }, windows);
    const text = (x, y, said, attributes = {}) => svg("text", { x, y, ...attributes }, said);
    const line = (x1, y1, x2, y2, kind) => svg("line", { x1, y1, x2, y2, class: kind });

    const [unit, factor] = this.scale(Math.max(Math.abs(floor), Math.abs(top)));
    for (const y of ticks(floor * factor, top * factor, 4)) {
      const at = up(y / factor);
      drawn.append(line(LEFT, at, right, at, "grid"), text(LEFT - 6, at + 4, written(y, 1), { "text-anchor": "end" }));
    }
    const { releases, loads } = this.chart;
    const places = ticks(low, high, clamp(width / 80, 3, 10), this.timed);
    for (const x of releases ? places.filter(Number.isInteger) : places) {
      const said = { x: across(x), y: foot + 14, "text-anchor": "middle" };
      const name = releases ? cutShort(releases[x].name) : written(x, 1);
      drawn.append(line(across(x), TOP, across(x), foot, "grid"), svg("text", said, name));
    }
    drawn.append(clip, line(LEFT, bottom, right, bottom, "axis"));
    drawn.append(text((LEFT + right) / 2, foot + 29, this.axisWords.label, { "text-anchor": "middle", class: "soft" }));
    drawn.append(text(-(TOP + bottom) / 2, 11, unit, { transform: "rotate(-90)", "text-anchor": "middle", class: "soft" }));

    for (const run of phased) {
      const at = (second) => across((second - this.start(run)) / 60);
      if (run.window) {
        const [from, to] = run.window.map(at);
        windows.append(svg("rect", { x: from, y: TOP, width: to - from, height: HEIGHT, class: "window" }));
        clip.append(line(from, TOP, from, bottom, `edge ${run.side}`));
        if (run === phased.at(-1) && to - from > 70)
          clip.append(text((Math.max(from, LEFT) + Math.min(to, right)) / 2, TOP + 10, this.chart.window, { "text-anchor": "middle", class: "soft" }));
      }
      const y = bottom + 3 + phased.indexOf(run) * (strip + 1);
      drawn.append(svg("rect", { x: LEFT - 6, y, width: 4, height: strip, class: `side ${run.side}` }));
      for (const [name, from, to] of run.phases) {
        const [left, end] = [Math.max(at(from), LEFT), Math.min(at(to), right)];
        if (end <= left) continue;
        clip.append(svg("rect", { x: left, y, width: Math.max(end - left - 1, 1), height: strip, class: name }));
        if (strip > 10 && end - left > 46 && name !== "shutdown")
          clip.append(text((left + end) / 2, y + 11, name, name === "bumps" ? { "text-anchor": "middle", style: "fill: var(--paper)" } : { "text-anchor": "middle" }));
      }
    }
    for (const { side, seconds, values, halves, cloud } of loads ? this.shown : []) {
      const [dots, ends] = [svg("g", { class: "cloud" }), { there: [], back: [] }];
      cloud[0].forEach((users, i) => dots.append(svg("circle", { cx: across(users), cy: up(cloud[1][i]), r: 1.5, class: `dot ${side}` })));
      values.forEach((value, i) => {
        ends.there.push(`${across(seconds[i]).toFixed(1)} ${up(value * Math.exp(halves[i])).toFixed(1)}`);
        ends.back.unshift(`${across(seconds[i]).toFixed(1)} ${up(value / Math.exp(halves[i])).toFixed(1)}`);
      });
      curves.append(dots, svg("path", { d: `M${ends.there.concat(ends.back).join("L")}Z`, class: `band ${side}` }));
    }
    if (loads) {
      const x = across(loads.at);
      curves.append(line(x, TOP, x, bottom, "change"), text(x - 4, bottom - 6, loads.text, { "text-anchor": "end", class: "halo" }));
    }
    for (const run of this.shown) {
      const d = path(pointsOf(run, this.axis), low, high, across, up);
      curves.append(svg("path", { d, class: `curve ${run.side}`, "data-run": run.key }));
      if (!releases) continue;
      const { x, y } = pointsOf(run, this.axis), seen = [...x.keys()].filter((i) => x[i] >= low && x[i] <= high);
      for (const i of seen.length > DOTS ? [] : seen) {
        const [at, factor] = [across(x[i]), spread(run, x[i], i)];
        if (factor > 1) curves.append(line(at, up(y[i] / factor), at, up(y[i] * factor), `spread ${run.side}`));
        curves.append(svg("circle", { cx: at, cy: up(y[i]), r: 2.5, class: `dot ${run.side}` }));
      }
    }
    (releases ? this.chart.changes : []).forEach(({ at, text: said }, i) => {
      const x = across(at - 0.5);
      curves.append(line(x, TOP, x, bottom, "change"), text(x + 4, TOP + 10 + 13 * (i % 3), said, { class: "halo" }));
    });
    if (this.timed) {
      for (const { side, run, at, text: said } of this.chart.events) {
        const own = this.shown.find((each) => each.key === `${side} ${run}`);
        if (!own) continue;
        const x = across((at - this.start(own)) / 60);
        curves.append(line(x, TOP, x, bottom, `event ${side}`), text(x + 4, bottom - 6, said, { class: `${side} halo` }));
      }
    }
    if (this.axis === "elapsed") {
      for (const { side, from, to, text: said } of this.chart.marks) {
        if (side && !this.shown.some((run) => run.side === side)) continue;
        const [x1, y1, x2, y2] = [across(from[0] / 60), up(from[1]), across(to[0] / 60), up(to[1])];
        curves.append(x1 === x2 && y1 === y2 ? svg("circle", { cx: x1, cy: y1, r: 4, class: `dot ${side}` }) : line(x1, y1, x2, y2, `mark ${side ?? "neutral"}`));
        if (said) curves.append(text(x2 + 6, (y1 + y2) / 2, said, { class: "halo" }));
      }
    }
    this.cursor = svg("g", { class: "cursor" });
    this.selection = svg("rect", { class: "selection", y: TOP, height: HEIGHT, width: 0 });
    drawn.append(curves, this.selection, this.cursor);
    this.plot.replaceChildren(drawn);
    this.plot.setAttribute("aria-valuemin", low);
    this.plot.setAttribute("aria-valuemax", high);
    this.mark();
    this.fill();
  }

  /** The mean of a build's shown runs at the cursor. */
  value(side, at) {
    const found = this.shown.filter((run) => run.side === side).map((run) => valueAt(pointsOf(run, this.axis), at));
    const known = found.filter((value) => value !== null);
    return known.length ? known.reduce((a, b) => a + b) / known.length : null;
  }

  /** The scale in which values up to `largest` are read: its name and factor. */
  scale(largest) { return this.chart.scales.find(([least]) => Math.abs(largest) >= least).slice(1); }

  quantity(value) {
    if (value === null) return "–";
    const [unit, factor] = this.scale(value || 1);
    return `${written(value * factor)} ${this.chart.short ?? unit}`.trim();
  }

  difference(base, fresh) {
    if (base === null || fresh === null) return "";
    const percent = (fresh / base - 1) * 100;
    if (base > 0 && Number.isFinite(percent)) return changed(percent);
    return (fresh < base ? "−" : "+") + this.quantity(Math.abs(fresh - base));
  }

  get axisWords() { return this.chart.releases ? RELEASES : AXES[this.ofUsers ? "users" : this.axis]; }
  get ofUsers() { return this.axis === "users" || this.axis === "loads"; }

  /** The release that the cursor is at. */
  release(at) { return this.chart.releases?.[Math.round(at)]; }

  /** What a build is called: over releases each has another name. */
  label(side, at = null) {
    const label = this.chart.labels[side];
    return at !== null && this.release(at) ? `${label} ${this.release(at)[side]}` : label;
  }

  where(at) {
    const release = this.release(at);
    if (release) return [release.name, release.note].filter(Boolean).join(", ");
    return this.ofUsers ? `${written(Math.round(at))} users` : `${at.toFixed(1).replace("-", "−")} min`;
  }

  phases(at) {
    if (!this.timed) return "";
    const names = SIDES.map((side) => {
      const run = this.shown.find((each) => each.side === side);
      const second = run && at * 60 + this.start(run);
      return run?.phases.find(([, from, to]) => second >= from && second < to)?.[0];
    });
    if (names[0] === names[1]) return names[0] ?? "";
    return SIDES.flatMap((side, i) => (names[i] ? [`${this.chart.labels[side]} ${names[i]}`] : [])).join(", ");
  }

  /** What a reader must know of values that are not all there. */
  get thinned() {
    const span = this.timed ? Math.max(...this.shown.map((run) => run.thinned ?? 0)) : 0;
    return span > 0 ? `thinned: minimum and maximum of each ${written(span, 1)} s` : "";
  }

  /** Show the values where the cursor is. */
  mark() {
    if (!this.cursor) return;
    const { at } = this.group;
    const inside = at !== null && at >= this.range[0] && at <= this.range[1];
    const said = [];
    this.cursor.replaceChildren();
    this.readout.replaceChildren();
    if (inside) {
      const x = this.across(at);
      this.cursor.append(svg("line", { x1: x, x2: x, y1: TOP, y2: TOP + HEIGHT }));
      for (const run of this.shown) {
        const value = valueAt(pointsOf(run, this.axis), at);
        if (value !== null) this.cursor.append(svg("circle", { cx: x, cy: this.up(value), r: 3.5, class: `dot ${run.side}` }));
      }
    }
    const values = SIDES.map((side) => (inside ? this.value(side, at) : null));
    SIDES.forEach((side, i) => {
      if (!this.shown.some((run) => run.side === side)) return;
      const shown = html("span", { class: side === "base" ? "of-base" : "of-new" }, html("span", { class: `swatch ${side}` }), this.label(side, inside ? at : null));
      if (inside) shown.append(" ", html("span", { class: "value" }, this.quantity(values[i])));
      said.push(`${this.label(side, inside ? at : null)} ${this.quantity(values[i])}`);
      this.readout.append(shown);
    });
    if (!inside) return this.plot.setAttribute("aria-valuetext", "no place chosen");
    const place = [this.where(at), this.phases(at), this.thinned].filter(Boolean).join(", ");
    const difference = this.difference(...values);
    this.readout.append(html("span", { class: "difference value" }, difference));
    const anchor = this.across(at) > this.plot.clientWidth / 2 ? "end" : "start";
    this.cursor.append(svg("text", { x: this.across(at), y: TOP - 5, "text-anchor": anchor }, place));
    this.plot.setAttribute("aria-valuenow", at);
    this.plot.setAttribute("aria-valuetext", [place, ...said, difference].filter(Boolean).join("; "));
  }

  /** Every value that is drawn, where the table is open. */
  fill() {
    if (!this.details.open || !this.range) return;
    const runs = this.shown, axis = this.axis, [low, high] = this.range;
    const [unit, factor] = this.scale(Math.max(...runs.map((run) => run.most), 0));
    const several = new Set(runs.map((run) => run.side)).size < runs.length;
    const name = (run) => this.chart.labels[run.side] + (several ? `, run ${run.run}` : "");
    const heads = [this.axisWords.unit, ...runs.map((run) => `${name(run)}, ${this.chart.short ?? unit}`), "Difference"];
    const places = [];
    for (const x of runs.flatMap((run) => [...pointsOf(run, axis).x]).sort((a, b) => a - b)) {
      if (x >= low && x <= high && !(x - places.at(-1) < 1e-6)) places.push(x);
    }
    const digits = this.ofUsers ? 0 : 2;
    const rows = places.map((x) => {
      const release = this.release(x);
      const named = release?.href ? html("a", { href: release.href }, release.name) : release?.name;
      const row = html("tr", {}, html("th", { scope: "row" }, named ?? x.toFixed(digits).replace("-", "−")));
      for (const run of runs) {
        const value = valueAt(pointsOf(run, axis), x);
        row.append(html("td", {}, value === null ? "–" : written(value * factor)));
      }
      row.append(html("td", {}, this.difference(...SIDES.map((side) => this.value(side, x)))));
      return row;
    });
    const head = html("tr", {}, ...heads.map((each) => html("th", { scope: "col" }, each)));
    const note = this.thinned ? [html("caption", {}, this.thinned)] : [];
    this.table.replaceChildren(html("table", {}, ...note, html("thead", {}, head), html("tbody", {}, ...rows)));
  }

  listen() {
    const { plot, group } = this;
    const pixel = (event) => event.clientX - plot.getBoundingClientRect().left;
    let from = null;
    plot.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      from = pixel(event);
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      group.point(this.sampled(this.back(pixel(event))));
      if (from === null) return;
      const [a, b] = [from, pixel(event)].map((each) => this.across(this.back(each))).sort((one, other) => one - other);
      this.selection.setAttribute("x", a);
      this.selection.setAttribute("width", b - a);
    });
    plot.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const [a, b] = [from, pixel(event)].sort((one, other) => one - other);
      from = null;
      if (b - a > 5) group.change({ range: [this.back(a), this.back(b)] });
      else this.tap(this.sampled(this.back(b)), event.pointerType);
    });
    plot.addEventListener("pointercancel", () => { from = null; this.selection.setAttribute("width", 0); });
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") group.point(null); });
    plot.addEventListener("dblclick", () => group.change({ range: null }));
    plot.addEventListener("blur", () => group.point(null));
    plot.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || !this.shown.length) return;
      if (!this.key(event)) return;
      event.preventDefault();
      event.stopPropagation(); // notebooks have commands of one letter
    });
  }

  /** The place of the sample that is nearest to a place of the axis. */
  sampled(at) {
    const points = this.shown.map((run) => pointsOf(run, this.axis)).filter(({ x }) => x.length);
    const places = points.map((each) => each.x[nearest(each, at)]).sort((a, b) => Math.abs(a - at) - Math.abs(b - at));
    return places.length ? clamp(places[0], ...this.range) : at;
  }

  /** A click opens a report. A finger shows what is there first, and opens it when it comes back. */
  tap(at, pointer) {
    if (pointer === "mouse" || this.tapped === at) return this.open(at);
    this.tapped = at;
    this.group.point(at);
  }

  /** Go to the report of the release there, if it has one. */
  open(at) {
    const href = this.release(at)?.href;
    if (href) location.assign(new URL(href, document.baseURI));
  }

  /** Move the cursor, or zoom, by keyboard; whether it was one of these keys. */
  key({ key, shiftKey }) {
    const { group, range: [low, high] } = this;
    const points = pointsOf(this.shown[0], this.axis);
    const [first, last] = [low, high].map((end) => nearest(points, end));
    const here = group.at === null ? Math.round((first + last) / 2) : nearest(points, group.at);
    const far = Math.max(Math.round((last - first) / 20), 1);
    const step = { ArrowLeft: shiftKey ? -far : -1, ArrowRight: shiftKey ? far : 1, PageDown: -far, PageUp: far }[key];
    if (step || key === "Home" || key === "End") {
      const to = step ? (group.at === null ? here : here + step) : key === "Home" ? first : last;
      group.point(clamp(points.x[clamp(to, first, last)], low, high));
    } else if (key === "+" || key === "=" || key === "-") {
      const [least, most] = this.extent();
      const wide = (high - low) * (key === "-" ? 2 : 0.5);
      const start = clamp((group.at ?? (low + high) / 2) - wide / 2, least, most - wide);
      group.change({ range: wide >= most - least ? null : [start, start + wide] });
    } else if (key === "0" || key === "Escape") group.change({ range: null });
    else if (key === "Enter" && this.chart.releases && group.at !== null) this.open(group.at);
    else return false;
    return true;
  }
}

// ---- What is chosen for all charts of a test ------------------------------------------------------------------------

class BuildTools extends HTMLElement {
  connectedCallback() {
    this.group = Group.of(this.getAttribute("group"));
    this.group.members.add(this);
    if (!this.shadowRoot) this.attachShadow({ mode: "open" }).append(html("style", {}, STYLE), html("div", { class: "tools" }));
    if (this.group.chart) this.draw();
    else this.learn().catch(() => {}); // a browser without DecompressionStream: there is nothing to choose
  }

  disconnectedCallback() { this.group.members.delete(this); }
  mark() {}

  /** What there is to choose, before a chart is drawn: else the keyboard would go past this. */
  async learn() {
    const first = document.querySelector(`build-chart[group="${CSS.escape(this.getAttribute("group"))}"]`);
    if (first) this.group.chart ??= await unpacked(first.getAttribute("data"));
    this.draw();
  }

  draw() {
    const { group } = this;
    if (!group.chart) return;
    this.synced ??= this.build();
    this.synced.forEach((sync) => sync());
  }

  /** Make the controls; the functions that put each in the state of the group. */
  build() {
    const { group } = this, { runs, labels } = group.chart, box = this.shadowRoot.querySelector("div"), synced = [];
    const toggle = (keys, ...named) => {
      const field = html("input", { type: "checkbox" });
      field.addEventListener("change", () => {
        const hidden = new Set(group.hidden);
        keys.forEach((key) => (field.checked ? hidden.delete(key) : hidden.add(key)));
        group.change({ hidden });
      });
      synced.push(() => (field.checked = keys.some((key) => !group.hidden.has(key))));
      box.append(html("label", {}, field, " ", ...named));
    };
    for (const side of SIDES) {
      const keys = runs.filter((run) => run.side === side).map((run) => run.key);
      if (keys.length) toggle(keys, html("span", { class: `swatch ${side}` }), labels[side]);
      if (keys.length > 1) keys.forEach((key, i) => toggle([key], `run ${i + 1}`));
    }
    const choose = html("select");
    for (const [axis, { choice }] of Object.entries(AXES)) {
      const known = { elapsed: true, ramp: runs.every((run) => run.onset !== null), users: runs.every((run) => run.users.length) };
      const option = html("option", { value: axis }, choice);
      option.disabled = !known[axis];
      choose.append(option);
    }
    choose.addEventListener("change", () => group.change({ axis: choose.value, range: null, at: null }));
    synced.push(() => (choose.value = group.axis));
    const { releases, loads } = group.chart;
    const all = html("button", { type: "button" }, releases ? "All releases" : loads ? "All loads" : "Whole run");
    all.addEventListener("click", () => group.change({ range: null }));
    synced.push(() => (all.disabled = group.range === null));
    if (!releases && !loads) box.append(html("label", {}, "Over ", choose));
    box.append(all);
    if (this.hasAttribute("hint")) this.shadowRoot.append(html("p", { class: "hint" }, releases ? RELEASES_HINT : HINT));
    return synced;
  }
}

// A chart is drawn when it comes near what is seen.
const inView = new IntersectionObserver(
  (seen) => {
    for (const { target, isIntersecting } of seen) {
      if (!isIntersecting) continue;
      inView.unobserve(target);
      target.build();
    }
  },
  { rootMargin: "300px" },
);

if (!customElements.get("build-chart")) {
  customElements.define("build-tools", BuildTools);
  customElements.define("build-chart", BuildChart);
}
