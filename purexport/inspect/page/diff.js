// The page of two models: a list of the differences, and the graphs beside each other.

const COLORS = ["paper", "panel", "ink", "faint", "line", "edge", "accent", "bad", "onColor", "weights", "norm",
  "activation", "reduce", "control", "shape", "element", "outside", "frame", "module", "found", "onBad",
  "removed", "added", "changed", "otherWeights", "same"];
const PARTS = ["list", "a", "b"];
const NARROW = 900;  // pixels, as in the style
const SIGNS = { "only in a": "\u2212", "only in b": "+", tensor: "w", order: "\u2195", storage: "s", bytes: "b" };

const MOST_NAME = 34;  // letters in a row

// `graph.node["fc"].attribute["axis"].i` is about fc, and there about attribute["axis"].i.
function titleOf(path) {
  const found = /^graph\.(\w+)\[("?)/.exec(path);
  const end = found === null ? -1 : path.indexOf(`${found[2]}]`, found[0].length);
  if (end < 0) return [path || "the model", ""];
  const name = path.slice(found[0].length, end), field = path.slice(end + found[2].length + 2);
  return [found[2] ? name : `${found[1]} ${name}`, field];
}

const isAbout = (path, field) => path.startsWith(`graph.${field}[`);
const SHOWN_BY = {
  all: () => true,
  removed: ([kind]) => kind === "only in a",
  added: ([kind]) => kind === "only in b",
  nodes: ([, path]) => isAbout(path, "node"),
  weights: ([, path]) => isAbout(path, "initializer") || isAbout(path, "sparse_initializer"),
  others: (row) => !SHOWN_BY.nodes(row) && !SHOWN_BY.weights(row),
};

class DiffPage {
  constructor(facts, data, timings) {
    this.facts = facts;
    this.timings = timings;
    this.theming = [];
    this.at = -1;
    this.readColors();
    const sizes = facts.sides.map(({ ranges }) => ranges.reduce((sum, one, at) => sum + (at % 2 ? one : 0), 0));
    const { messages, enums, dtypes, root } = facts, both = { messages, enums, dtypes, root, histograms: {} };
    const [first, second] = facts.sides;
    this.a = new Side(this, "a-", { ...both, ...first }, data.subarray(0, sizes[0]), "removed");
    this.b = new Side(this, "b-", { ...both, ...second }, data.subarray(sizes[0]), "added");
    this.partners();
    this.rowOf = new Map();  // of a node: the first difference that concerns it
    for (const row of facts.differences) {
      for (const [side, path] of [[this.a, row[3]], [this.b, row[4]]]) {
        const element = path ? side.resolve(path) : null;
        if (element === null) continue;
        side.note(element, row[0]);
        for (const node of side.nodesOf(element)) if (!this.rowOf.has(node)) this.rowOf.set(node, row);
      }
    }
    for (const side of [this.a, this.b]) side.graph.setPaint(side);
    this.headline();
    this.rows = facts.differences;
    this.list = new List($("differences"), 40, () => this.rows.length, (row, index) => this.fill(row, index));
    this.listen();
    this.filter("all");
    this.part("list");
    const inGraph = this.rows.findIndex((row) => isAbout(row[1], "node"));
    if (this.rows.length && innerWidth > NARROW) this.take(Math.max(0, inGraph));
  }

  headline() {
    const { facts } = this, [first, second] = facts.sides, listed = facts.differences.length;
    say($("file"), `${first.file} and ${second.file}`);
    say($("info"), facts.total ? many(facts.total, "difference") : "equal");
    const cut = `${count(facts.total)} differences, the first ${count(listed)} are listed`;
    if (listed < facts.total) say($("info"), cut);
    say(document.querySelector(".kind-removed"), `only in ${first.file}`);
    say(document.querySelector(".kind-added"), `only in ${second.file}`);
    say($("tab-a"), first.file);
    say($("tab-b"), second.file);
  }

  // Which node of one model is which of the other: by name, else by the name of the first result, as `purexport diff`
  // pairs them; and what it paired in another way has a difference with both places.
  partners() {
    this.pairs = new Map();
    const [mine, theirs] = [this.a, this.b].map((side) => side.model.graphs[0]?.nodes ?? []);
    const key = (node) => node.name || `-> ${node.outputs[0] ?? ""}`;
    const found = new Map(theirs.map((node) => [key(node), node]));
    const pair = (one, other) => {
      this.pairs.set(one, other);
      this.pairs.set(other, one);
    };
    for (const node of mine) if (found.has(key(node))) pair(node, found.get(key(node)));
    for (const [, , , atA, atB] of this.facts.differences) {
      const [one, other] = [atA, atB].map((path) => /^graph\.node\[(\d+)\]/.exec(path));
      if (one === null || other === null || !mine[one[1]] || !theirs[other[1]]) continue;
      pair(mine[one[1]], theirs[other[1]]);
    }
  }

  // A node was clicked in one graph: the other shows its partner.
  selectedIn(side, element) {
    const node = side.nodeOf(element), other = side === this.a ? this.b : this.a;
    const partner = node === undefined ? undefined : this.pairs.get(node);
    if (partner !== undefined) other.graph.selected(partner.element, "");
    const at = this.rows.indexOf(this.rowOf.get(node));
    if (at >= 0) this.point(at);
    else this.describe([["", node === undefined ? "" : `${node.op} ${node.name}`, "the same in both"]]);
  }

  filter(name) {
    this.rows = this.facts.differences.filter(SHOWN_BY[name]);
    this.at = -1;
    say($("count"), count(this.rows.length));
    for (const id of ["back", "next"]) $(id).disabled = !this.rows.length;
    this.list.refresh();
    this.list.goTo(0);
    if (!this.rows.length) this.describe([["", "Nothing differs", this.facts.total ? "of this kind" : ""]]);
  }

  fill(row, index) {
    const [kind, path, text] = this.rows[index];
    row.id = `difference-${index}`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(index === this.at));
    row.classList.toggle("chosen", index === this.at);
    const sign = make("span", `sign ${this.classOf(this.rows[index])}`, SIGNS[kind] ?? "~");
    const words = make("div", "words");
    const [name, field] = titleOf(path);
    words.append(make("div", "name", endOf(name, MOST_NAME)), make("div", "text", field ? `${field}: ${text}` : text));
    row.append(sign, words);
    row.addEventListener("click", () => this.take(index));
  }

  classOf([kind, path]) {
    if (kind === "only in a") return "removed";
    if (kind === "only in b") return "added";
    return isAbout(path, "initializer") ? "weights" : "changed";
  }

  // Marks a row, and says all of it.
  point(index) {
    this.at = index;
    this.list.refresh();
    this.list.show(index);
    $("differences").setAttribute("aria-activedescendant", `difference-${index}`);
    this.describe([this.rows[index]]);
  }

  describe(rows) {
    const box = clear($("difference"));
    for (const [kind, path, text, atA, atB] of rows) {
      box.append(make("h3", "", path || "the model"), make("p", "", text));
      const places = [[this.a, atA], [this.b, atB]].filter((place) => place[1]);
      for (const [side, at] of places) box.append(make("p", "faint", `${at} in ${side.facts.file}`));
    }
  }

  // Jumps to a difference, in both graphs where both have it.
  take(index) {
    if (index < 0 || index >= this.rows.length) return;
    this.point(index);
    const [, , , atA, atB] = this.rows[index];
    const shown = [[this.a, atA], [this.b, atB]].filter(([side, path]) => {
      const element = path ? side.resolve(path) : null;
      return element !== null && side.show(element);
    }).map(([side]) => side);
    if (shown.length === 1) {
      const [side] = shown, other = side === this.a ? this.b : this.a;
      const near = this.nearest(side, other);
      if (near !== null) other.graph.selected(near.element, "");
    }
    if (shown.length && innerWidth <= NARROW) this.part(shown[0] === this.a ? "a" : "b");
  }

  // In the other model, the partner of the last node before the chosen one that has a partner.
  nearest(side, other) {
    const { nodes } = side.graph.graph, node = side.graph.nodeOf(side.graph.chosen);
    for (let at = nodes.indexOf(node); at >= 0; at--) {
      const partner = this.pairs.get(nodes[at]);
      if (partner !== undefined && other.nodeOf(partner.element) === partner) return partner;
    }
    return null;
  }

  part(name) {
    document.querySelector("main").dataset.part = name;
    for (const one of PARTS) $(`tab-${one}`).setAttribute("aria-selected", String(one === name));
  }

  tip(event, lines = []) {
    showTip(event, lines);
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
    for (const side of [this.a, this.b]) side.graph.renew();
    for (const listener of this.theming) listener();
  }

  listen() {
    for (const one of PARTS) $(`tab-${one}`).addEventListener("click", () => this.part(one));
    $("theme").addEventListener("click", () => this.theme());
    $("shown").addEventListener("change", () => this.filter($("shown").value));
    $("next").addEventListener("click", () => this.take(Math.min(this.at + 1, this.rows.length - 1)));
    $("back").addEventListener("click", () => this.take(Math.max(this.at - 1, 0)));
    $("differences").addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1, n: 1, p: -1 }[event.key];
      if (step === undefined) return;
      this.take(Math.max(0, Math.min(this.rows.length - 1, this.at + step)));
      event.preventDefault();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.themed());
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target !== document.body) return;
      if (event.key === "t") this.theme();
      else if (event.key === "n") this.take(Math.min(this.at + 1, this.rows.length - 1));
      else if (event.key === "p") this.take(Math.max(this.at - 1, 0));
    });
  }
}

openPage((facts, data, timings) => new DiffPage(facts, data, timings));
