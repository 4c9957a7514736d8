// What both pages do: unpack their data, open, light and dark, the box beside the pointer.

// The data block: base64 of a deflated stream of the length of the facts, the facts, and the bytes of the file.
function unpacked(text) {
  const packed = atob(text), octets = new Uint8Array(packed.length);
  for (let at = 0; at < octets.length; at++) octets[at] = packed.charCodeAt(at);
  const data = inflated(octets), length = new DataView(data.buffer).getUint32(0, true);
  return [JSON.parse(decoder.decode(data.subarray(4, 4 + length))), data.subarray(4 + length)];
}

// `make` makes the page of its data; `window.page` is that page. All of it before the browser paints.
function openPage(make) {
  try {
    const start = performance.now(), block = $("data"), [facts, data] = unpacked(block.textContent.trim());
    block.remove();
    const timings = { unpacked: Math.round(performance.now() - start) };
    window.page = make(facts, data, timings);
    $("loading").remove();
    document.documentElement.dataset.made = "yes";  // it is painted from here on, with the graph in it
    requestAnimationFrame(() => {
      timings.shown = Math.round(performance.now());  // since the page was asked for
      document.documentElement.dataset.ready = "yes";
    });
  } catch (error) {
    say($("loading"), `This page cannot be shown: ${error.message ?? error.reason}`);
    throw error;
  }
}

// The colours of the style by name.
function readColors(names) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const colors = Object.fromEntries(names.map((name) => [name, color(name)]));
  colors.hues = [0, 1, 2, 3, 4, 5, 6, 7].map((at) => color(`hue${at}`));
  return colors;
}

function switchTheme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme ?? (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
}

// Lines beside the pointer; none where `event` is null.
function showTip(event, lines) {
  const box = $("tip");
  box.hidden = event === null;
  if (event === null) return;
  clear(box).append(...lines.filter(Boolean).map((line) => make("div", "", line.slice(0, 300))));
  const right = event.clientX + 14 + box.offsetWidth > innerWidth;
  box.style.left = `${Math.max(0, right ? event.clientX - box.offsetWidth - 10 : event.clientX + 14)}px`;
  const below = event.clientY + 18 + box.offsetHeight > innerHeight;
  box.style.top = `${below ? event.clientY - box.offsetHeight - 10 : event.clientY + 18}px`;
}
