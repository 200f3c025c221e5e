let version = document.body.dataset.version;
let silentSince = null;
const now = () => new Date().toLocaleTimeString("en-GB");
const renewedNow = () => (document.getElementById("renewed").textContent = `Last renewed at ${now()}.`);

const keyOf = (part) => {
  const name = part.closest("[data-key]")?.dataset.key ?? part.getAttribute("aria-label") ?? part.getAttribute("href");
  return [part.tagName, name].join(" ");
};
const byKey = (selector) => new Map(all(selector).map((part) => [keyOf(part), part]));
const focusable = ".page :is(a, input, summary, button, [tabindex])";

// What a reader has chosen survives a newer page: boxes, choices, sliders, what was unfolded, scrolled to or focused.
function choicesMade() {
  const inputs = byKey("input");
  const unfolded = byKey("details");
  const scrolled = new Map(all(".page [tabindex]").map((part) => [keyOf(part), part.scrollLeft]));
  const focused = document.activeElement.matches(focusable) ? keyOf(document.activeElement) : null;
  return {
    choices() {
      for (const [key, input] of byKey("input")) {
        const before = inputs.get(key);
        if (before && input.type === "range") input.value = before.value;
        else if (before && (input.type !== "radio" || before.checked)) input.checked = before.checked;
      }
      for (const [key, part] of byKey("details")) part.open = unfolded.get(key)?.open ?? part.open;
    },
    place() {
      for (const [key, part] of byKey(".page [tabindex]")) part.scrollLeft = scrolled.get(key) ?? 0;
      if (focused !== null) byKey(focusable).get(focused)?.focus({ preventScroll: true });
    },
  };
}

function renew(fresh) {
  const restore = choicesMade();
  for (const part of [".page", "#plots", "#seen"]) document.querySelector(part).replaceWith(fresh.querySelector(part));
  document.title = fresh.title;
  restore.choices();
  start();
  restore.place();
}

async function asked(address) {
  const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(30_000) });
  if (!answer.ok) throw new Error(answer.status);
  return answer.text();
}

let asking = false; // a slow answer is waited for: two at a time would draw the page twice

async function refresh() {
  if (asking) return;
  asking = true;
  const note = document.getElementById("news");
  const say = (words) => note.textContent !== words && (note.textContent = words);
  try {
    const [latest, ...trouble] = (await asked("version")).split("\n");
    if (latest !== version) {
      const fresh = new DOMParser().parseFromString(await asked("./"), "text/html");
      renew(fresh);
      version = fresh.body.dataset.version;
      renewedNow();
    }
    silentSince = null;
    say(trouble.join(" "));
  } catch {
    silentSince ??= now();
    say(`The command watch does not answer since ${silentSince}; this is the last that was seen.`);
  } finally {
    asking = false;
  }
}

start();
renewedNow();
refresh();
setInterval(refresh, 2000);
