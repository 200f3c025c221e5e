// Maps of features: images or points, the one that is looked at, and its nearest neighbours.
const LOOSE = 1.7; // as many places for images as there are images, so that the shape of the map remains

function startMaps() {
  const { maps = [], atlases = [] } = told("seen");
  document.getElementById("tiles")?.remove();
  const style = document.head.appendChild(document.createElement("style"));
  style.id = "tiles";
  const sheets = atlases.map((atlas, i) => {
    const sheet = new Image();
    sheet.src = atlas.src;
    style.append(`.sheet-${i}{background-image:url(${atlas.src});background-size:${100 * atlas.columns}% auto;`);
    style.append(`image-rendering:${atlas.side < 64 ? "pixelated" : "auto"}}\n`);
    return { ...atlas, sheet };
  });
  for (const place of all("[data-map]")) startMap(place, maps[place.dataset.map], sheets);
}

// One image of an atlas as an element of the page.
function tile(atlas, number, row, says) {
  const made = document.createElement("span");
  const rows = Math.round(atlas.sheet.naturalHeight / atlas.side) || 1;
  const at = (i, n) => `${n > 1 ? (100 * i) / (n - 1) : 0}%`;
  made.className = `tile sheet-${number}`;
  made.style.backgroundPosition = `${at(row % atlas.columns, atlas.columns)} ${at(Math.floor(row / atlas.columns), rows)}`;
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", says);
  made.title = says;
  return made;
}

function startMap(place, map, sheets) {
  const canvas = place.querySelector("canvas");
  const slider = place.querySelector("[type=range]");
  const atlas = sheets[map.atlas];
  const view = { zoom: 1, x: 0.5, y: 0.5, group: null, pinned: false };
  const asked = map.near.length;
  const chosenOf = (name) => place.querySelector(`[name^="${name}-"]:checked`).value;
  const called = (i) => [map.groups[map.group[i]]?.name, map.names[i]].filter(Boolean).join(": ");
  const css = (name) => getComputedStyle(place).getPropertyValue(name).trim();

  // Where each image is, in units of its side: points exactly, images at the nearest free place, so that all are seen.
  function layout(width, height) {
    const [xs, ys] = map.places[chosenOf("projection")];
    const [[x0, x1], [y0, y1]] = [extent(xs), extent(ys)];
    const side = Math.min(96, Math.sqrt((width * height) / asked / LOOSE));
    const [columns, rows] = [Math.floor(width / side), Math.floor(height / side)];
    const at = xs.map((x, i) => [((x - x0) / (x1 - x0)) * (columns - 1), ((y1 - ys[i]) / (y1 - y0)) * (rows - 1)]);
    if (chosenOf("look") === "points" || !(columns * rows >= asked)) return { at, side };
    const taken = new Set();
    const free = ([x, y]) => x >= 0 && x < columns && y >= 0 && y < rows && !taken.has(x + columns * y);
    return { side, at: at.map((exact) => {
      const [cx, cy] = exact.map(Math.round);
      const far = ([x, y]) => Math.hypot(x - exact[0], y - exact[1]);
      for (let ring = 0, found = []; ; ring++) {
        for (let d = -ring; d <= ring; d++)
          found.push(...[[cx + d, cy - ring], [cx + d, cy + ring], [cx - ring, cy + d], [cx + ring, cy + d]].filter(free));
        const best = found.reduce((one, other) => (far(other) < far(one) ? other : one), found[0]);
        if (!best || far(best) > ring + 0.5) continue; // a place of the next ring may be nearer
        taken.add(best[0] + columns * best[1]);
        return best;
      }
    }) };
  }

  let known = {};
  function spots() {
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const key = [width, height, chosenOf("projection"), chosenOf("look")].join();
    if (known.key !== key) known = { key, ...layout(width, height) };
    const side = known.side * view.zoom;
    const [across, down] = [width / known.side, height / known.side];
    const at = known.at.map(([x, y]) => [
      width / 2 + ((x + 0.5 + (across % 1) / 2) - view.x * across) * side,
      height / 2 + ((y + 0.5 + (down % 1) / 2) - view.y * down) * side,
    ]);
    return { at, side, width, height };
  }

  function draw() {
    const { at, side, width, height } = spots();
    if (!width || !atlas.sheet.complete) return;
    const scale = Math.max(2, devicePixelRatio);
    [canvas.width, canvas.height] = [width * scale, height * scale];
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.imageSmoothingEnabled = atlas.side >= 64;
    const chosen = Number(slider.value);
    const near = map.near[chosen].filter((row) => row < asked);
    pen.strokeStyle = css("--faint");
    for (const row of near) {
      pen.beginPath();
      pen.moveTo(...at[chosen]);
      pen.lineTo(...at[row]);
      pen.stroke();
    }
    for (const i of [...at.keys()].filter((i) => i !== chosen).concat(chosen)) {
      const here = i === chosen ? 1.5 * side : side - 2;
      const [x, y] = [at[i][0] - here / 2, at[i][1] - here / 2];
      const look = map.groups[map.group[i]] ?? { color: css("--faint"), sign: "●" };
      pen.globalAlpha = view.group === null || view.group === map.group[i] || i === chosen ? 1 : 0.12;
      if (chosenOf("look") === "images") {
        const [u, v] = [i % atlas.columns, Math.floor(i / atlas.columns)];
        pen.drawImage(atlas.sheet, u * atlas.side, v * atlas.side, atlas.side, atlas.side, x, y, here, here);
        pen.lineWidth = i === chosen ? 3 : Math.max(1, here / 16);
        pen.strokeStyle = i === chosen ? css("--ink") : look.color;
        if (map.groups.length || i === chosen) pen.strokeRect(x, y, here, here);
      } else {
        pen.fillStyle = look.color;
        pen.font = `${i === chosen ? 24 : 13}px sans-serif`;
        [pen.textAlign, pen.textBaseline] = ["center", "middle"];
        pen.fillText(look.sign, ...at[i]);
      }
    }
    pen.globalAlpha = 1;
  }

  function look(i) {
    slider.value = i;
    const words = document.createElement("strong");
    words.textContent = called(i);
    const list = document.createElement("ol");
    map.near[i].forEach((row, k) => {
      const item = list.appendChild(document.createElement("li"));
      const [own, other] = [map.group[i], map.group[row]];
      const mark = map.labelled && own >= 0 && other >= 0 ? (own === other ? "right" : "wrong") : "";
      item.className = mark;
      const sign = mark && (mark === "right" ? "✓ " : "✕ ");
      item.append(tile(atlas, map.atlas, row, called(row)), `${sign}${map.cosine[i][k].toFixed(3)}`);
      if (row < asked) item.onclick = () => look(row);
    });
    place.querySelector("output").replaceChildren(tile(atlas, map.atlas, i, called(i)), words, list);
    draw();
  }

  function nearest(event) {
    const { at, side } = spots();
    const box = canvas.getBoundingClientRect();
    const far = at.map(([x, y]) => Math.hypot(x - event.clientX + box.left, y - event.clientY + box.top));
    const best = far.indexOf(Math.min(...far));
    return far[best] < Math.max(12, 0.75 * side) ? best : null;
  }

  function zoom(by) {
    if (by) view.zoom = Math.min(20, Math.max(1, view.zoom * by));
    else Object.assign(view, { zoom: 1 });
    if (view.zoom === 1) Object.assign(view, { x: 0.5, y: 0.5 });
    draw();
  }

  canvas.onpointermove = (event) => {
    if (event.buttons && view.zoom > 1) {
      view.x -= event.movementX / view.zoom / canvas.clientWidth;
      view.y -= event.movementY / view.zoom / canvas.clientHeight;
      draw();
    } else if (!view.pinned && event.pointerType === "mouse") {
      const i = nearest(event);
      if (i !== null && i !== Number(slider.value)) look(i);
    }
  };
  canvas.onclick = (event) => {
    const i = nearest(event);
    view.pinned = i !== null && !(view.pinned && i === Number(slider.value));
    if (i !== null) look(i);
  };
  canvas.onwheel = (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8);
  };
  all("[data-zoom]", place).forEach((button) => (button.onclick = () => zoom(Number(button.dataset.zoom))));
  all("[data-group]", place).forEach((button) => {
    button.onclick = () => {
      const group = Number(button.dataset.group);
      view.group = view.group === group ? null : group;
      all("[data-group]", place).forEach((each) => (each.ariaPressed = String(Number(each.dataset.group) === view.group)));
      draw();
    };
  });
  all("[type=radio]", place).forEach((radio) => (radio.onchange = draw));
  slider.oninput = () => look(Number(slider.value));
  atlas.sheet.decode().then(() => look(Number(slider.value)));
  new ResizeObserver(draw).observe(canvas); // also when what it was folded into opens
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
