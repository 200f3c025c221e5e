"use strict";
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const told = (identity) => JSON.parse(document.getElementById(identity).textContent);
const SVG = "http://www.w3.org/2000/svg";
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 392, 8, 200]; // of a plot's axes in its picture of 400 x 230

function shape(parent, tag, attributes, text = "") {
  const made = parent.appendChild(document.createElementNS(SVG, tag));
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

function ticks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
  const count = Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1;
  return Array.from({ length: count }, (_, i) => Number(((Math.ceil(low / step - 1e-9) + i) * step).toPrecision(6)));
}

function extent(values) {
  const finite = values.filter((value) => value !== null);
  if (!finite.length) return [0, 1];
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const room = high > low ? 0 : Math.abs(low) / 10 || 1;
  return [low - room, high + room];
}

function drawPlot(place, traces) {
  place.replaceChildren();
  const [x0, x1] = extent([0, ...traces.flatMap((trace) => trace.x)]);
  const [y0, y1] = extent(traces.flatMap((trace) => trace.y));
  const x = (value) => LEFT + ((value - x0) / (x1 - x0)) * (RIGHT - LEFT);
  const y = (value) => BOTTOM - ((value - y0) / (y1 - y0)) * (BOTTOM - TOP);
  for (const value of ticks(y0, y1)) {
    shape(place, "path", { class: "grid", d: `M${LEFT} ${y(value)}H${RIGHT}` });
    shape(place, "text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value);
  }
  for (const value of ticks(x0, x1)) shape(place, "text", { x: x(value), y: BOTTOM + 16, "text-anchor": "middle" }, value);
  shape(place, "text", { x: RIGHT, y: BOTTOM + 29, "text-anchor": "end" }, "epoch");
  for (const trace of traces) {
    let pen = "M";
    const d = trace.x.map((value, i) => {
      const here = trace.y[i] === null ? "" : `${pen}${x(value).toFixed(1)} ${y(trace.y[i]).toFixed(1)}`;
      pen = here ? "L" : "M";
      return here;
    });
    shape(place, "path", { class: "line", d: d.join(""), stroke: trace.color, "stroke-dasharray": trace.dash });
    const marked = trace.x.length <= 25 ? trace.x.keys() : [trace.x.length - 1];
    for (const i of marked)
      if (trace.y[i] !== null) shape(place, "circle", { cx: x(trace.x[i]), cy: y(trace.y[i]), r: 2.5, fill: trace.color });
  }
  hearPlot(place, traces, x, y);
}

// Under the pointer: a line at the nearest epoch, and the value of each run there.
function hearPlot(place, traces, x, y) {
  const marks = shape(place, "g", { class: "marks" });
  place.onpointerleave = () => marks.replaceChildren();
  place.onpointermove = (event) => {
    marks.replaceChildren();
    const box = place.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * 400;
    const near = traces.map((trace) => {
      const i = trace.x.reduce((best, value, k) => (Math.abs(x(value) - at) < Math.abs(x(trace.x[best]) - at) ? k : best), 0);
      return { trace, epoch: trace.x[i], value: trace.y[i] };
    });
    if (!near.length) return;
    const left = x(near[0].epoch);
    shape(marks, "path", { class: "cursor", d: `M${left} ${TOP}V${BOTTOM}` });
    const shown = near.filter((each) => each.value !== null);
    for (const { trace, epoch, value } of shown) shape(marks, "circle", { cx: x(epoch), cy: y(value), r: 4, fill: trace.color });
    const anchor = left > 220 ? "end" : "start";
    const lines = [`epoch ${Number(near[0].epoch.toPrecision(4))}`, ...shown.map(({ trace, value }) => `${names()[trace.run] ?? ""} ${Number(value.toPrecision(4))}`)];
    lines.forEach((words, i) =>
      shape(marks, "text", { class: "tip", x: left + (anchor === "end" ? -8 : 8), y: TOP + 10 + 13 * i, "text-anchor": anchor }, words),
    );
  };
}

const names = () => all("[data-run]").map((box) => box.parentElement.textContent.trim());

function drawCurves() {
  const plots = told("plots");
  const hidden = new Set(all("[data-run]:not(:checked)").map((box) => Number(box.dataset.run)));
  for (const place of all("[data-plot]"))
    drawPlot(place, plots[place.dataset.plot].traces.filter((trace) => !hidden.has(trace.run)));
}

function start() {
  drawCurves();
  all("[data-run]").forEach((box) => box.addEventListener("change", drawCurves));
  startMaps();
  setTimeout(() => all("output").forEach((output) => (output.ariaLive = "polite")), 200); // what is drawn first is no news
}
