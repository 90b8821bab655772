// Draws the pictures of a report (traces.py says what they are) with Plotly, lays their panels out
// in the width that there is, and does what the bar at the top asks for: which runs and layers are
// shown, in which order, and how far curves are smoothed.
"use strict";

const BELOW = 34, TITLE = 26, GAP = 26, NARROW = 300, ROW = 15, LINES = 250, MOST_ROWS = 75;
const SHORTEST = 190;  // of a picture with a color bar
const COLORS = {grid: "#e3e3e3", empty: "#dcdcdc", text: "#1b1f24"};
let report = {pictures: [], runs: [], worst: []};  // as the page brings it
const bar = {hidden: new Set(), layers: "", order: "worst", smooth: 1 / 40};

const element = id => document.getElementById(id);

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(element(id).textContent.trim()), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// ---- What is shown ----

function matches(name) {
  const parts = bar.layers.toLowerCase().split(",").map(part => part.trim()).filter(Boolean);
  return !parts.length || parts.some(part => name.toLowerCase().includes(part));
}

// The rows of a panel that are shown, by their numbers, from top to bottom. Rows that are no layers
// (classes, runs) stay as they are.
function rowsOf(panel) {
  const all = panel.rows.map((_, i) => i);
  if (!panel.rows.some(name => report.rank.has(name))) return all;
  const kept = all.filter(i => matches(panel.rows[i]));
  const place = i => report.rank.get(panel.rows[i]) ?? report.rank.size + i;
  return bar.order === "worst" ? kept.sort((a, b) => place(a) - place(b)) : kept;
}

const isShown = one => !one.run || !bar.hidden.has(one.run);

function smoothed(values) {
  const width = Math.max(1, Math.floor(values.length * bar.smooth));
  let sum = 0, count = 0;
  return values.map((value, i) => {
    if (value !== null) { sum += value; ++count; }
    const gone = i >= width ? values[i - width] : null;
    if (gone !== null) { sum -= gone; --count; }
    return count && value !== null ? sum / count : null;
  });
}

// ---- Traces of a panel ----

// Heights in a panel with rows as they are after sorting; null for rows that are not shown.
function placed(y, places) {
  if (!places || y === null) return y;
  const row = Math.round(y - 1e-6), at = places.get(row);
  return at === undefined ? null : at + (y - row);
}

function heatTrace(picture, panel, rows) {
  const heat = panel.heat, order = panel.rows ? rows : heat.rows.map((_, i) => i);
  const level = i => i < 0 ? null : picture.levels[i];
  const z = order.map(row => heat.index[row].map(level));
  const texts = order.map(row => heat.index[row].map((i, column) => i < 0 ? "no value"
    : `${heat.rows[row]}, ${heat.places[column]}: ${picture.words[i]}`));
  const {scale, words, under, over, broken} = picture.colors, low = Math.min(...picture.levels) < 0 ? -0.15 : 0;
  const most = Math.max(...picture.levels), span = (most > 1.15 ? 1.25 : most > 1 ? 1.12 : 1) - low;
  const at = value => Math.min(1, Math.max(0, (value - low) / span));
  const stops = [[0, low < 0 ? under : scale[0]], [at(-0.001), low < 0 ? under : scale[0]],
    ...scale.flatMap((color, i) => words
      ? [[at(i / scale.length), color], [at((i + 0.999) / scale.length), color]]
      : [[at(i / (scale.length - 1)), color]]),
    ...(most > 1 ? [[at(1.001), over], [at(1.15), over]] : []),
    ...(most > 1.15 ? [[at(1.1501), broken], [1, broken]] : [])];
  const y = panel.rows ? [...order, 0].map((_, i) => i - 0.5) : heat.heights;
  return {type: "heatmap", x: heat.edges, y, z, text: texts, hoverinfo: "text", colorscale: stops,
    zmin: low, zmax: low + span, showscale: false, hoverongaps: true};
}

function lineTraces(panel, line, places) {
  const y = line.y.map(value => placed(value, places));
  const style = {color: line.color, width: line.width, dash: line.dash,
    shape: line.steps ? "hv" : "linear"};
  const trace = {type: "scatter", x: line.x, y, line: style, name: line.name, connectgaps: false,
    mode: [line.dash && "lines", line.marker && "markers"].filter(Boolean).join("+"),
    marker: {symbol: line.marker, size: line.size, color: line.color,
      line: {color: line.marker === "line-ns-open" ? line.color : "#fff", width: 1}}};
  if (line.band)
    return [{...trace, mode: "lines", fill: "toself", fillcolor: line.color + "2e",
      line: {width: 0, color: line.color}, hoverinfo: "skip"}];
  if (!line.name || panel.rows) trace.hoverinfo = "skip";
  else trace.hovertemplate = `${line.name}: %{y:.5~g}<extra></extra>`;
  if (panel.y.power && !panel.rows && line.name)
    trace.hovertemplate = `${line.name}: 2^%{y:.4~g}<extra></extra>`;
  if (!line.smooth || y.length < 80) return [trace];
  const faint = {...trace, line: {...style, width: 0.7}, opacity: 0.25, hoverinfo: "skip"};
  delete faint.hovertemplate;
  return bar.smooth > 0 ? [faint, {...trace, y: smoothed(y)}] : [trace];
}

function barTrace(one) {
  return {type: "bar", orientation: "h", x: [one.width], base: [one.x], y: [one.y],
    width: [one.height], marker: {color: one.color}, hovertext: [one.words], hoverinfo: "text"};
}

function tracesOf(picture, panel, rows) {
  const places = panel.rows && rows ? new Map(rows.map((row, at) => [row, at])) : null;
  const traces = panel.heat ? [heatTrace(picture, panel, rows)] : [];
  for (const line of panel.lines)
    if (isShown(line) && (!line.layer || matches(line.layer)))
      traces.push(...lineTraces(panel, line, places));
  traces.push(...panel.bars.filter(isShown).map(barTrace));
  const texts = panel.texts.map(one => ({...one, y: placed(one.y, places)}))
    .filter(one => one.y !== null);
  if (texts.length)
    traces.push({type: "scatter", mode: "text", x: texts.map(t => t.x), y: texts.map(t => t.y),
      text: texts.map(t => escaped(t.text)), hoverinfo: "skip",
      textfont: {size: 10, color: texts.map(t => t.color)}});
  const points = (panel.points || []).filter(isShown)
    .map(point => ({...point, y: placed(point.y, places)})).filter(point => point.y !== null);
  if (points.length)
    traces.push({type: "scatter", mode: "markers", x: points.map(p => p.x), y: points.map(p => p.y),
      hovertext: points.map(p => p.words), hoverinfo: "text", marker: {size: 14, opacity: 0}});
  return traces;
}

// ---- Layout ----

function axisOf(axis) {
  const found = {title: {text: axis.title, standoff: 6, font: {size: 12}}, range: axis.range,
    zeroline: false, gridcolor: COLORS.grid, automargin: false, ticks: "outside", ticklen: 3,
    tickfont: {size: 11}, linecolor: "#9aa2aa", showline: true};
  if (axis.log) Object.assign(found, {type: "log", range: axis.range.map(Math.log10)});
  if (axis.power)
    Object.assign(found, {tickprefix: "2<sup>", ticksuffix: "</sup>", tickformat: "d",
      nticks: 7});
  if (axis.ticks)
    Object.assign(found, {tickvals: axis.ticks[0], ticktext: axis.ticks[1].map(shortened)});
  return found;
}

const shortened = text => text.length > 30 ? text.slice(0, 14) + "…" + text.slice(-15) : text;

function rowAxis(axis, panel, rows, named) {
  const every = Math.max(1, Math.ceil(rows.length / MOST_ROWS));
  const at = rows.map((_, i) => i).filter(i => i % every === 0);
  Object.assign(axis, {uirevision: rows.join(), range: [rows.length - 0.5, -0.5], showgrid: false, tickvals: at,
    ticktext: named ? at.map(i => shortened(panel.rows[rows[i]])) : at.map(() => "")});
  if (!named || panel.rows.some(name => report.rank.has(name))) axis.title = {text: ""};
}

// Where panels stand: columns, and the height of each row of them, in pixels.
function grid(panels, width, left, rows) {
  const columns = Math.max(1, Math.min(panels.length, Math.floor((width - left) / NARROW), 3));
  const heights = [];
  for (let first = 0; first < panels.length; first += columns)
    heights.push(Math.max(...panels.slice(first, first + columns).map((panel, i) =>
      panel.rows ? Math.max(60, ROW * Math.min(rows[first + i].length, 3 * MOST_ROWS)) + 10
        : panel.bars.length ? 40 + 34 * new Set(panel.bars.map(one => one.y)).size
          : panel.heat ? 210 : panel.y.ticks ? 30 + 26 * panel.y.ticks[0].length : LINES)));
  return {columns, heights};
}

function colorBar(picture, height) {
  return {title: {text: picture.bar.title, side: "right", font: {size: 11}},
    tickvals: picture.bar.ticks[0], ticktext: picture.bar.ticks[1], thickness: 12,
    lenmode: "pixels", len: Math.min(height - 24, 300), y: 1 - 24 / height, yanchor: "top", x: 1.01, xpad: 4,
    tickfont: {size: 11}};
}

function drawing(picture, width) {
  const panels = picture.panels.filter(isShown);
  const rows = panels.map(panel => panel.rows ? rowsOf(panel) : null);
  const longest = Math.max(6, ...panels.flatMap(panel => [...(panel.rows || []),
    ...(panel.y.ticks ? panel.y.ticks[1] : [])].map(name => shortened(name).length)));
  const left = Math.min(longest * 6.6 + 34, width * 0.42), right = picture.bar ? 86 : 16;
  const {columns, heights} = grid(panels, width - right, left, rows);
  const turned = panels.some(panel => panel.x.ticks && panel.heat);
  const below = turned ? 110 : BELOW + 10;
  const inner = width - left - right, gap = panels.some(panel => !panel.rows) ? 64 : GAP;
  const across = (inner - gap * (columns - 1)) / columns;
  const total = Math.max(picture.bar ? SHORTEST : 0,
    heights.reduce((sum, height) => sum + height + TITLE + below, 0));
  const layout = {width, height: total + 8, margin: {l: left, r: right, t: 4, b: 4},
    paper_bgcolor: "#fff", plot_bgcolor: picture.colors ? COLORS.empty : "#fff", showlegend: false,
    font: {family: "system-ui, sans-serif", size: 12, color: COLORS.text}, annotations: [],
    hovermode: "closest", uirevision: "kept", barmode: "overlay", dragmode: "zoom"};
  const traces = [];
  let top = 0;
  panels.forEach((panel, i) => {
    const row = Math.floor(i / columns), column = i % columns, number = i ? i + 1 : "";
    if (column === 0 && row > 0) top += heights[row - 1] + TITLE + below;
    const start = column * (across + gap), high = 1 - (top + TITLE) / total;
    const x = axisOf(panel.x), y = axisOf(panel.y);
    Object.assign(x, {domain: [start / inner, (start + across) / inner], anchor: "y" + number});
    Object.assign(y, {domain: [Math.max(0, high - heights[row] / total), high],
      anchor: "x" + number});
    if (panel.rows) rowAxis(y, panel, rows[i], column === 0);
    if (i && panel.x.title === panels[0].x.title) x.matches = "x";
    if (i && panel.rows && panels[0].rows) y.matches = "y";
    layout["xaxis" + number] = x;
    layout["yaxis" + number] = y;
    layout.annotations.push({text: `<b>${escaped(shortTitle(panel.title, across))}</b>`,
      xref: "paper", yref: "paper", x: start / inner, y: high, xanchor: "left", yanchor: "bottom",
      showarrow: false, font: {size: 12.5}});
    for (const trace of tracesOf(picture, panel, rows[i]))
      traces.push({...trace, xaxis: "x" + number, yaxis: "y" + number});
  });
  const first = traces.find(trace => trace.type === "heatmap");
  if (first && picture.bar)
    Object.assign(first, {showscale: true, colorbar: colorBar(picture, total - 10)});
  return {traces, layout};
}

function shortTitle(text, width) {
  const most = Math.max(10, Math.floor(width / 7.2)), half = Math.floor(most / 2);
  return text.length > most ? text.slice(0, half) + "…" + text.slice(-(most - half - 1)) : text;
}

const escaped = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// ---- The page ----

function draw(box) {
  const picture = report.byName.get(box.dataset.picture);
  if (!picture || !picture.panels) return;
  const {traces, layout} = drawing(picture, Math.max(280, box.clientWidth));
  box.classList.toggle("none", !traces.length);
  if (!traces.length) { Plotly.purge(box); box.textContent = "nothing of it is shown"; return; }
  if (box.dataset.drawn !== "yes") box.textContent = "";
  Plotly.react(box, traces, layout, {displaylogo: false, responsive: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]});
  box.dataset.drawn = "yes";
}

const seen = new IntersectionObserver(entries => {
  for (const entry of entries) {
    entry.target.dataset.near = entry.isIntersecting ? "yes" : "";
    if (entry.isIntersecting && entry.target.dataset.stale !== "no") {
      entry.target.dataset.stale = "no";
      draw(entry.target);
    }
  }
}, {rootMargin: "700px"});

// Draws anew what is near the screen now, the rest when it comes there.
function redraw() {
  for (const box of document.querySelectorAll(".picture")) {
    box.dataset.stale = "";
    if (box.dataset.near === "yes") { box.dataset.stale = "no"; draw(box); }
  }
}

function drawAll() {
  for (const box of document.querySelectorAll(".picture")) {
    if (box.dataset.stale === "no") continue;
    box.dataset.stale = "no";
    draw(box);
  }
}

function listen() {
  for (const tick of document.querySelectorAll("#bar input[name=run]"))
    tick.onchange = () => {
      bar.hidden[tick.checked ? "delete" : "add"](tick.value);
      redraw();
    };
  element("layers").oninput = event => { bar.layers = event.target.value; redraw(); };
  element("order").onchange = event => { bar.order = event.target.value; redraw(); };
  element("smooth").oninput = event => { bar.smooth = event.target.value / 400; redraw(); };
}

// What the bar says stays when a page that goes on brings new content.
function show(text) {
  report = JSON.parse(text);
  report.byName = new Map(report.pictures.map(picture => [picture.name, picture]));
  report.rank = new Map(report.worst.map((name, i) => [name, i]));
  for (const box of document.querySelectorAll(".picture")) seen.observe(box);
  redraw();
}

// ---- A run that goes on: its content is asked for again and again ----

const WAIT = 5000;  // milliseconds between two questions

// The new content in place of the old one; pictures that both have stay, with their zoom.
function replace(html) {
  const made = document.createElement("template"), main = element("content"), top = scrollY;
  const opened = new Set([...main.querySelectorAll("details[open] > summary")].map(
    one => one.textContent));
  made.innerHTML = html;
  for (const box of made.content.querySelectorAll(".picture")) {
    const old = main.querySelector(`.picture[data-picture="${box.dataset.picture}"]`);
    if (old) box.replaceWith(old);
  }
  for (const summary of made.content.querySelectorAll("details > summary"))
    summary.parentElement.open = opened.has(summary.textContent);
  main.replaceChildren(made.content);
  scrollTo(0, top);
}

async function ask(tag) {
  const answer = await fetch("content", {cache: "no-store", headers: {"If-None-Match": tag}});
  if (answer.status === 304) return tag;
  if (!answer.ok) throw new Error(await answer.text());
  const {html, data} = await answer.json();
  replace(html);
  show(data);
  element("fresh").textContent = "read at " + new Date().toLocaleTimeString();
  return answer.headers.get("ETag");
}

async function follow() {
  let tag = await ask("");
  const next = async () => {
    try {
      tag = await ask(tag);
      element("trouble").textContent = "";
    } catch (error) {
      element("trouble").textContent = "no new content: " + (error.message || error);
    }
    setTimeout(next, WAIT);
  };
  setTimeout(next, WAIT);
}

let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
addEventListener("beforeprint", drawAll);
addEventListener("load", async () => {
  listen();
  try {
    if (typeof DecompressionStream === "undefined")
      throw new Error("this browser cannot unpack the page's pictures (it knows no "
        + "DecompressionStream); take a newer one, or make the page with --static");
    if (element("data")) {
      (0, eval)(await unpacked("plotly"));
      show(await unpacked("data"));
    } else {
      await follow();
    }
  } catch (error) {
    element("trouble").textContent = String(error.message || error);
  }
  document.body.dataset.ready = "yes";
});
