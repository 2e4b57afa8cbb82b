// Shows a <build-chart> in a widget of JupyterLab. What is zoomed to goes to the kernel, and comes from it, as `chosen`:
// the axis, and the range on it (null: everything).

const state = ({ axis, range }) => JSON.stringify([axis, range]);

function render({ model, el }) {
  const style = document.createElement("style");
  style.textContent = model.get("style");
  el.classList.add("buildcompare");
  let group = null, seen = "";
  const watcher = {
    mark() {},
    draw() {
      if (state(group) === seen) return;
      seen = state(group);
      model.set("chosen", { axis: group.axis, range: group.range });
      model.save_changes();
    },
  };
  const leave = () => group?.members.delete(watcher);
  const show = () => {
    const chart = document.createElement("build-chart");
    for (const [name, value] of Object.entries({ tools: "", ...model.get("chart") })) chart.setAttribute(name, value);
    el.replaceChildren(style, ...(model.get("chart").data ? [chart] : []));
    const join = () => {
      if (!chart.group) return void (chart.parentNode === el && requestAnimationFrame(join)); // not in the page yet
      leave();
      group = chart.group;
      seen = state(group);
      group.members.add(watcher);
      follow();
    };
    join();
  };
  const follow = () => {
    const { axis = "elapsed", range = null } = model.get("chosen");
    if (!group || state({ axis, range }) === state(group)) return;
    seen = state({ axis, range });
    group.change({ axis, range });
  };
  model.on("change:chart", show);
  model.on("change:chosen", follow);
  show();
  return leave;
}

export default { render };
