"use strict";
const plots = JSON.parse(document.getElementById("plots").textContent);
const places = [...document.querySelectorAll("[data-plot]")];
const boxes = [...document.querySelectorAll("[data-run]")];
const shown = (run) => boxes.length === 0 || boxes[run].checked;

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
    xaxis: { ...axis, title: { text: "epoch" } },
    yaxis: axis,
  };
}

const names = boxes.map((box) => box.parentElement.textContent.replace(/[<&]/g, (sign) => (sign === "<" ? "&lt;" : "&amp;")));

function draw() {
  for (const place of places) {
    const traces = plots[place.dataset.plot].traces.map((trace) => ({
      ...trace,
      type: "scatter",
      name: names[trace.run],
      visible: shown(trace.run),
    }));
    Plotly.react(place, traces, layout(), { responsive: true, displaylogo: false, displayModeBar: false });
  }
}

if (places.length) {
  draw();
  boxes.forEach((box) => box.addEventListener("change", draw));
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", draw);
  }
}
