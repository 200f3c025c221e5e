function pointTraces(map, places, chosen, ring) {
  const groups = map.classes.map((group, k) => {
    const rows = map.class.map((label, i) => i).filter((i) => map.class[i] === k);
    return {
      type: "scatter",
      mode: "markers",
      name: asText(group.name),
      x: rows.map((i) => places[0][i]),
      y: rows.map((i) => places[1][i]),
      customdata: rows,
      hoverinfo: "none",
      marker: { color: group.color, symbol: group.symbol, size: 7, opacity: 0.85 },
    };
  });
  const around = { color: "rgba(0,0,0,0)", size: 18, line: { color: ring, width: 2 } };
  const here = { type: "scatter", mode: "markers", marker: around, hoverinfo: "skip", showlegend: false };
  return [...groups, { ...here, x: [places[0][chosen]], y: [places[1][chosen]] }];
}

function lookAt(k, i, data) {
  const map = data.maps[k];
  const output = document.querySelector(`[data-looked="${k}"]`);
  const name = map.classes[map.class[i]].name;
  const picture = new Image();
  picture.src = data.pictures[map.pictures[i]];
  picture.alt = name;
  picture.onload = () => picture.classList.toggle("sharp", picture.naturalWidth < 64);
  const words = document.createElement("span");
  words.textContent = map.names[i] === name ? name : `${name}: ${map.names[i]}`;
  output.replaceChildren(picture, words);
  document.querySelector(`[data-slider="${k}"]`).value = i;
}

function drawMap(place, data) {
  const k = Number(place.dataset.map);
  const map = data.maps[k];
  const chosen = Number(document.querySelector(`[data-slider="${k}"]`).value);
  const common = layout();
  const bare = { showticklabels: false, zeroline: false, showgrid: false, showline: true, mirror: true };
  const axis = { ...bare, linecolor: common.xaxis.gridcolor };
  Plotly.react(
    place,
    pointTraces(map, map.places[place.dataset.projection], chosen, common.font.color),
    { ...common, hovermode: "closest", margin: { l: 2, r: 2, t: 2, b: 2 }, xaxis: axis, yaxis: axis },
    config,
  );
}

function look(k, i, data) {
  lookAt(k, i, data);
  all(`[data-map="${k}"]`).forEach((place) => drawMap(place, data));
}

function drawMaps() {
  const data = told("seen");
  for (const place of all("[data-map]")) {
    drawMap(place, data);
    if (place.dataset.heard) continue;
    place.dataset.heard = "yes";
    const k = Number(place.dataset.map);
    const slider = document.querySelector(`[data-slider="${k}"]`);
    place.on("plotly_hover", (event) => {
      const i = event.points[0].customdata;
      if (i !== undefined && i !== Number(slider.value)) look(k, i, data);
    });
    slider.oninput = () => look(k, Number(slider.value), data);
    lookAt(k, Number(slider.value), data);
  }
}

drawers.push(drawMaps);
