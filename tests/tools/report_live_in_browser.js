// Works the bar of a page of tools/report.py as a reader would, in the width that its address asks
// for (#400), and tells the frame around it what the pictures then show.
const plot = name => document.querySelector(`.picture[data-picture="${name}"]`);
const traces = (name, kind) => plot(name).data.filter(trace => trace.type === kind);
const names = name => traces(name, "heatmap")[0].text.map(row => row.find(
  text => text !== "no value").split(",")[0]);
const lines = () => traces("training", "scatter").filter(
  trace => trace.xaxis === "x" && trace.name && !trace.opacity && trace.mode === "lines");

function set(id, value, event) {
  const field = document.getElementById(id);
  field.value = value;
  field.dispatchEvent(new Event(event));
  again();
}

function again() {
  for (const box of document.querySelectorAll(".picture")) box.dataset.stale = "";
  drawAll();
}

// How far a curve jumps from point to point.
const jumps = y => y.slice(1).reduce((sum, value, i) => sum + Math.abs(value - y[i]), 0);

async function looked() {
  while (document.body.dataset.ready !== "yes") await new Promise(done => setTimeout(done, 50));
  again();
  const boxes = [...document.querySelectorAll(".picture")];
  const found = {
    asked: Number(location.hash.slice(1)), width: innerWidth,
    trouble: document.getElementById("trouble").textContent,
    plots: boxes.length, drawn: boxes.filter(box => box.querySelector(".main-svg")).length,
    worst: names("underflow"), panels: traces("underflow", "heatmap").length,
    lines: lines().length,
    tip: traces("underflow", "heatmap")[0].text.flat().find(text => text.startsWith("bn1, step 20")),
  };
  set("order", "network", "change");
  found.network = names("underflow");
  set("layers", "FC", "input");
  found.filtered = names("underflow");
  set("layers", "", "input");
  set("smooth", "0", "input");
  found.rough = jumps(lines().at(-1).y);
  set("smooth", "40", "input");
  found.smooth = jumps(lines().at(-1).y);
  plot("training").querySelector('[data-title="Zoom in"]').click();
  await new Promise(done => setTimeout(done, 200));
  found.zoomed = [...plot("training").layout.xaxis.range];
  document.querySelector("#bar input[name=run]").click();
  again();
  found.panelsOfOne = traces("underflow", "heatmap").length;
  found.linesOfOne = lines().length;
  found.zoom = [...plot("training").layout.xaxis.range];
  found.scrollWidth = document.documentElement.scrollWidth;
  found.wide = boxes.filter(box => box.getBoundingClientRect().right > innerWidth + 1).map(
    box => box.dataset.picture);
  parent.postMessage(found, "*");
}
addEventListener("load", looked);
