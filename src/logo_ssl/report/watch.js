let version = null;

// What a reader has chosen survives a newer page: boxes, choices, sliders, what was unfolded.
function choicesMade() {
  const key = (input) => [input.name, input.value, input.dataset.run, input.dataset.slider].join(" ");
  const inputs = new Map(all("input").map((input) => [key(input), input]));
  const unfolded = all("details").map((part) => part.open);
  return () => {
    for (const input of all("input")) {
      const before = inputs.get(key(input));
      if (before && input.type !== "range") input.checked = before.checked;
    }
    all("[data-slider]").forEach((slider) => {
      const before = [...inputs.values()].find((input) => input.dataset.slider === slider.dataset.slider);
      if (before) slider.value = before.value;
    });
    all("details").forEach((part, i) => (part.open = Boolean(unfolded[i])));
  };
}

async function refresh() {
  const note = document.getElementById("news");
  try {
    const latest = await (await fetch("version", { cache: "no-store" })).text();
    if (version !== null && latest !== version) {
      const text = await (await fetch("./", { cache: "no-store" })).text();
      const fresh = new DOMParser().parseFromString(text, "text/html");
      const restore = choicesMade();
      document.querySelector("main").replaceWith(fresh.querySelector("main"));
      for (const data of fresh.querySelectorAll("script[type='application/json']")) {
        const old = document.getElementById(data.id);
        if (old) old.replaceWith(data);
        else document.body.append(data);
      }
      restore();
      start();
    }
    version = latest;
    if (note) note.textContent = "";
  } catch {
    if (note) note.textContent = "logo-ssl watch does not answer; this is the last that was seen.";
  }
}

start();
refresh();
setInterval(refresh, 2000);
