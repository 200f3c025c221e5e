const gap = 0.8; // between two images; a crop has room for 1
const hatch = { fillmode: "overlay", fgcolor: "#ffffff", fgopacity: 1, size: 5, solidity: 0.25 };
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function positions(groups) {
  let next = 0;
  return groups.map((group) => {
    const here = group.crops.map((_, i) => next + i);
    next += group.crops.length + gap;
    return here;
  });
}

function barTraces(run, groups, places) {
  const bars = run.measures.map((measure) => ({
    type: "bar",
    name: measure.name,
    x: places.flat(),
    y: groups.flatMap((group) => group[measure.key]),
    marker: { color: measure.color, pattern: { ...hatch, shape: measure.pattern } },
    hovertemplate: "%{y:.2f}",
  }));
  const lines = run.measures.map((measure) => ({
    type: "scatter",
    mode: "lines",
    x: groups.flatMap((group, k) => [places[k][0] - 0.5, places[k].at(-1) + 0.5, null]),
    y: groups.flatMap((group) => [mean(group[measure.key]), mean(group[measure.key]), null]),
    line: { color: measure.color, width: 2, dash: measure.pattern ? "dash" : "solid" },
    showlegend: false,
    hoverinfo: "skip",
  }));
  return [...bars, ...lines];
}

function barPictures(groups, places, pictures) {
  const small = { xref: "x", yref: "paper", sizex: 0.92, sizey: 0.12, xanchor: "center", layer: "above" };
  const crops = groups.flatMap((group, k) =>
    group.crops.map((crop, i) => ({ ...small, source: pictures[crop], x: places[k][i], y: -0.02, yanchor: "top" })),
  );
  const wholes = groups.map((group, k) => ({
    ...small,
    source: pictures[group.picture],
    x: (places[k][0] + places[k].at(-1)) / 2,
    y: 1.04,
    sizex: 4,
    sizey: 0.24,
    yanchor: "bottom",
  }));
  return [...crops, ...wholes];
}

function meansInWords(run, groups) {
  const said = groups.map((group) => {
    const both = run.measures.map((measure) => `${measure.name} ${mean(group[measure.key]).toFixed(2)}`);
    return `${group.title}: ${both.join(", ")}`;
  });
  return `Means over crops. ${said.join("; ")}.`;
}

function drawBars() {
  const data = told("seen");
  for (const place of all("[data-bars]")) {
    const k = place.dataset.bars;
    const run = data.affinities[k];
    const choices = all(`[name="reference-${k}"]`);
    const reference = run.references[choices.find((choice) => choice.checked).value];
    const places = positions(reference.groups);
    const common = layout();
    const titles = reference.groups.map((group, i) => ({
      text: asText(group.title),
      x: (places[i][0] + places[i].at(-1)) / 2,
      y: 1.3,
      xref: "x",
      yref: "paper",
      yanchor: "bottom",
      showarrow: false,
    }));
    const words = meansInWords(run, reference.groups);
    document.querySelector(`[data-means="${k}"]`).textContent = words;
    place.setAttribute("aria-label", `${run.run}, ${reference.title}. ${words}`);
    Plotly.react(
      place,
      barTraces(run, reference.groups, places),
      {
        ...common,
        barmode: "group",
        bargap: 0.2,
        showlegend: true,
        legend: { orientation: "h", y: -0.2, yanchor: "top" },
        margin: { l: 50, r: 10, t: 115, b: 90 },
        annotations: titles,
        images: barPictures(reference.groups, places, data.pictures),
        xaxis: { showgrid: false, zeroline: false, showticklabels: false, range: [-0.8, places.at(-1).at(-1) + 0.8] },
        yaxis: { ...common.yaxis, range: [0, 1.02], title: { text: "normalised similarity" } },
        hovermode: "closest",
      },
      config,
    );
    for (const choice of choices) choice.onchange = drawBars;
  }
}

drawers.push(drawBars);
