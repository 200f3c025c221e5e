"use strict";
const config = { responsive: true, displaylogo: false, displayModeBar: false };
const all = (selector) => [...document.querySelectorAll(selector)];
const told = (identity) => JSON.parse(document.getElementById(identity)?.textContent || "null");
// Plotly reads some tags in names; here they are text.
const asText = (name) => name.replace(/[<&]/g, (sign) => (sign === "<" ? "&lt;" : "&amp;"));

function layout() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), automargin: true };
  return {
    margin: { l: 50, r: 10, t: 5, b: 40 },
    paper_bgcolor: colour("--page"),
    plot_bgcolor: colour("--page"),
    font: { color: colour("--ink"), size: 12 },
    showlegend: false,
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--panel"), font: { color: colour("--ink") } },
    xaxis: { ...axis, title: { text: "epoch" }, unifiedhovertitle: { text: "epoch %{x:.4~g}" } },
    yaxis: axis,
  };
}

function drawCurves() {
  const plots = told("plots");
  const boxes = all("[data-run]");
  const names = boxes.map((box) => asText(box.parentElement.textContent));
  const chosen = boxes.some((box) => box.checked);
  all("[data-none]").forEach((part) => (part.hidden = chosen));
  all(".plots").forEach((part) => (part.hidden = !chosen));
  if (!chosen) return;
  for (const place of all("[data-plot]")) {
    const traces = plots[place.dataset.plot].traces.map((trace) => ({
      ...trace,
      type: "scatter",
      name: names[trace.run],
      visible: boxes[trace.run].checked,
    }));
    Plotly.react(place, traces, layout(), config);
  }
}

// A part that is wider than the screen says so, and fades where more is hidden.
function hintAtMore() {
  for (const part of all(".wide")) {
    const hidden = part.scrollWidth - part.clientWidth;
    part.classList.toggle("scrolls", hidden > 2);
    part.classList.toggle("more", hidden - part.scrollLeft > 2);
    part.onscroll = hintAtMore;
  }
  all(".sheet img").forEach((picture) => (picture.onload = hintAtMore));
}

const drawers = [drawCurves];

function drawAll() {
  drawers.forEach((draw) => draw());
}

function start() {
  if (typeof Plotly !== "undefined") drawAll();
  all("[data-run]").forEach((box) => box.addEventListener("change", drawCurves));
  hintAtMore();
  setTimeout(() => all("output").forEach((output) => (output.ariaLive = "polite")), 200); // what is drawn first is no news
}

addEventListener("resize", hintAtMore);
for (const query of ["(prefers-color-scheme: dark)", "print"]) {
  matchMedia(query).addEventListener("change", () => typeof Plotly !== "undefined" && drawAll());
}
