// The page: unpacks the data, makes the parts, and lets them know of what is chosen. `window.page` is for the curious.

const TABS = ["graph", "sizes", "tensors", "hex"];
const COLORS = ["paper", "panel", "ink", "faint", "line", "edge", "accent", "bad", "onColor", "weights", "norm",
  "activation", "reduce", "control", "shape", "element", "outside", "frame", "module", "found", "onBad", "unknown"];

const NARROW = 900;  // pixels, as in the style

class App {
  constructor(facts, data, timings) {
    this.facts = facts;
    this.timings = timings;
    this.selecting = [];
    this.theming = [];
    this.chosen = null;
    this.readColors();
    const start = performance.now();
    this.bytes = new Bytes(facts, data);
    this.model = new Model(this.bytes, facts);
    timings.read = Math.round(performance.now() - start);
    this.strip = new Strip(this);
    this.graph = new GraphView(this);
    this.outline = new Outline(this, this.graph);
    this.sizes = new Sizes(this);
    this.tensors = new Tensors(this);
    this.hex = new Hex(this);
    this.tree = new Tree(this);
    this.details = new Details(this);
    this.search = new Search(this);
    this.errors = new Errors(this);
    this.headline();
    this.listen();
    this.tab(this.model.graphs.length ? "graph" : "hex");
    this.left(this.model.graphs.length ? "outline" : "tree");
    this.details.model();
    this.errors.start();
    this.side(false);
    if (this.graph.chosen >= 0) this.graph.center(this.graph.chosen);
    timings.made = Math.round(performance.now() - start);
  }

  onSelect(listener) {
    this.selecting.push(listener);
  }

  onTheme(listener) {
    this.theming.push(listener);
  }

  // `from` is the part in which it was chosen, which may keep its place.
  select(element, from = "") {
    this.chosen = element;
    this.side(true);
    for (const listener of this.selecting) listener(element, from);
  }

  // What is known of a module beside the graph.
  showModule(group) {
    if (innerWidth > NARROW) this.details.module(group);
  }

  // For readers of screens.
  announce(text) {
    say($("said"), text);
  }

  headline() {
    const { facts } = this;
    say($("file"), facts.file);
    const info = [sizeText(facts.size)];
    if (this.model.info.has("opset")) info.push(`opset ${this.model.info.get("opset")}`);
    if (this.model.graphs.length) info.push(many(this.model.graphs[0].nodes.length, "node"));
    if (this.model.tensors.length) info.push(many(this.model.tensors.length, "tensor"));
    say($("info"), info.join(" \u00b7 "));
    if (facts.damage === null) return;
    const box = $("damage"), { at, path, reason, cause } = facts.damage;
    box.hidden = false;
    box.append(make("b", "", `First bad byte: ${offsetText(at)}`));
    box.append(make("span", "", `, in ${path || "the model"}: ${reason}. `));
    box.append(make("span", "", `Likely cause: ${cause}. `));
    const show = make("button", "link", "show it");
    show.addEventListener("click", () => this.showDamage());
    box.append(show);
  }

  showDamage() {
    const { damage, size } = this.facts, chain = this.bytes.chainAt(Math.max(0, Math.min(damage.at, size - 1)));
    this.tab("hex");
    if (!chain.length) return;
    this.select(chain[chain.length - 1]);
    this.hex.list.show(this.hex.rowOf(Math.min(damage.at, size - 1)));
  }

  tab(name) {
    for (const one of TABS) {
      $(one).hidden = one !== name;
      $(`tab-${one}`).setAttribute("aria-selected", String(one === name));
    }
    this.current = name;
    this.part("middle");
  }

  // The part on the left is "outline" or "tree".
  left(name) {
    for (const one of ["outline", "tree"]) {
      $(one).hidden = one !== name;
      $(`left-${one}`).setAttribute("aria-selected", String(one === name));
    }
  }

  // In a narrow window one part is seen at a time: "left", or "middle", which has the tabs.
  part(name) {
    document.querySelector("main").dataset.part = name;
    $("tab-left").setAttribute("aria-selected", String(name === "left"));
    $(`tab-${this.current}`).setAttribute("aria-selected", String(name === "middle" || innerWidth > NARROW));
  }

  toLeft({ box }) {
    this.left(box.id);
    if (innerWidth <= NARROW) this.part("left");
    box.focus();
  }

  // There, what is chosen lies over the rest until it is closed.
  side(open) {
    document.querySelector("main").dataset.side = open ? "open" : "closed";
  }

  tip(event, lines = []) {
    showTip(event, lines);
  }

  status(text) {
    say($("status"), text);
  }

  readColors() {
    this.colors = readColors(COLORS);
  }

  theme() {
    switchTheme();
    this.themed();
  }

  themed() {
    this.readColors();
    for (const listener of this.theming) listener();
  }

  listen() {
    for (const name of TABS) $(`tab-${name}`).addEventListener("click", () => this.tab(name));
    $("tab-left").addEventListener("click", () => this.part("left"));
    for (const one of ["outline", "tree"]) $(`left-${one}`).addEventListener("click", () => this.left(one));
    $("side-close").addEventListener("click", () => this.side(false));
    $("theme").addEventListener("click", () => this.theme());
    $("help-button").addEventListener("click", () => $("help").showModal());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.themed());
    document.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.key === "F3" && this.search.results.length) {
      this.search.step(event.shiftKey ? -1 : 1);
      event.preventDefault();
      return;
    }
    const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey || typing || $("help").open) return;
    if (event.key === "/") $("search").focus();
    else if (event.key === "?") $("help").showModal();
    else if (event.key === "t") this.theme();
    else if (event.key === "e" && this.facts.errors !== null) this.errors.turn(!this.errors.on);
    else if (event.key === "Escape") this.side(false);
    else if (event.key === "m" || event.key === "f") this.toLeft(event.key === "m" ? this.outline : this.tree);
    else if (event.key === "z") this.strip.zoomTo(this.chosen);
    else if ("1234".includes(event.key)) this.tab(TABS[Number(event.key) - 1]);
    else if (this.current === "graph" && event.target === document.body) {
      this.graph.key(event);
      return;
    } else return;
    event.preventDefault();
  }
}

openPage((facts, data, timings) => new App(facts, data, timings));
