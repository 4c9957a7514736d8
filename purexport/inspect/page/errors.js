// How far each node of the main graph is from torch, as a paint of the graph: what `purexport compare --html` found.

const LEAST_ERROR = 1e-8;  // and below; 1 is the other end of the scale
const STOPS = [[0x2f, 0x7f, 0x86], [0x8a, 0x6d, 0x1b], [0xb3, 0x12, 0x3f]];  // as in the style, .scale
const WRONG = 2;  // is added to the rank of what is outside of the bounds

class Errors {
  constructor(app) {
    this.app = app;
    this.facts = app.facts.errors;
    this.on = false;
    this.button = $("graph-errors");
    this.button.hidden = this.facts === null;
    if (this.facts === null || !app.model.graphs.length) return;
    this.values = new Map(Object.entries(this.facts.values));
    this.nodes = app.model.graphs[0].nodes;
    this.atFault = this.nodes[this.facts.fault];
    this.first = this.nodes.find((node) => node.outputs.includes(this.facts.first));
    this.button.addEventListener("click", () => this.turn(!this.on));
    this.banner();
    this.turn(true);
    $("legend").open = innerWidth > NARROW;
  }

  // Chooses the node to look at first.
  start() {
    const node = this.facts === null ? undefined : this.atFault ?? this.first;
    if (node !== undefined) this.app.select(node.element);
  }

  turn(on) {
    this.on = on;
    this.button.setAttribute("aria-pressed", String(on));
    $("legend-families").hidden = on;
    $("legend-errors").hidden = !on;
    this.app.graph.setPaint(on ? this : null);
  }

  banner() {
    const box = $("compared"), { facts } = this, [first, ...more] = facts.text;
    box.hidden = false;
    box.classList.toggle("wrong", !facts.agrees);
    box.append(make("span", "", first));
    for (const line of more.slice(0, 4)) box.append(make("br"), make("span", "", line));
    if (this.atFault === undefined && this.first === undefined) return;
    const show = make("button", "link", "show it");
    show.addEventListener("click", () => {
      this.app.tab("graph");
      this.start();
    });
    box.append(" ", show);
  }

  // What is known of a node: the worst of its results; undefined where none was compared.
  of(node) {
    const found = node.outputs.filter((name) => this.values.has(name)).map((name) => this.values.get(name));
    const weight = ({ close, error }) => (close ? 0 : WRONG) + placeOn(error);
    return found.sort((a, b) => weight(b) - weight(a))[0];
  }

  rankOf(node) {
    const found = this.of(node);
    return found === undefined ? -Infinity : placeOn(found.error) + (found.close ? 0 : WRONG);
  }

  colorOf(rank) {
    return rank === -Infinity ? this.app.colors.unknown : scaleColor(rank >= WRONG ? rank - WRONG : rank);
  }

  edgeOf(rank) {
    return rank >= WRONG ? this.app.colors.bad : null;
  }

  markOf(node) {
    if (node === this.atFault) return "at fault";
    return node === this.first ? "first wrong" : "";
  }

  textOf(node) {
    const found = this.of(node);
    if (found === undefined) return "not compared";
    return `error ${errorText(found.error)}${found.close ? "" : ", outside of the bounds"}: ${found.text}`;
  }

  // Rows for the details of a node.
  rowsOf(node) {
    if (this.values === undefined) return [];
    const found = this.of(node), rows = [];
    if (found !== undefined && this.nodes.includes(node)) {
      const bounds = found.close ? "within the bounds" : "outside of the bounds";
      rows.push(["error", `${errorText(found.error)} of the largest element, ${bounds}`], ["values", found.text]);
      if (found.origin) rows.push([this.facts.other, found.origin]);
    }
    if (node === this.atFault) rows.push(["at fault", this.facts.why]);
    return rows;
  }

  // Rows for the details of the file: how the error grows.
  get layers() {
    const layers = Object.entries(this.facts?.layers ?? {}).slice(0, 60);
    return layers.map(([name, error]) => [name, errorText(error)]);
  }
}

const errorText = (error) => (error === null ? "infinite" : error === 0 ? "0" : error.toExponential(1));

// From 0 for errors up to LEAST_ERROR to 1 for those from 1 on; null is infinite.
function placeOn(error) {
  if (error === null) return 1;
  const place = 1 - Math.log10(Math.max(error, LEAST_ERROR)) / Math.log10(LEAST_ERROR);
  return Math.max(0, Math.min(1, place));
}

function scaleColor(place) {
  const at = Math.min(place * (STOPS.length - 1), STOPS.length - 1), low = Math.min(Math.floor(at), STOPS.length - 2);
  const mixed = STOPS[low].map((from, index) => Math.round(from + (STOPS[low + 1][index] - from) * (at - low)));
  return `rgb(${mixed.join(", ")})`;
}
