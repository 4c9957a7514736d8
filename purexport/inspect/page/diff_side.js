// One of the two models: its bytes, its graph, and which of its nodes differ, as a paint of the graph.

// from what matters least; a folded module has the colour of the most
const SAME = 0, WEIGHTS = 1, CHANGED = 2, ONLY = 3;
const RANK_NAMES = ["the same in both", "other weights", "changed", "only in this model"];

class Side {
  // `ids` is "a-" or "b-"; `only` names the colour of what is in this model alone.
  constructor(page, ids, facts, data, only) {
    this.page = page;
    this.facts = facts;
    this.only = only;
    this.timings = page.timings;
    this.selecting = [];
    this.ranks = new Map();
    this.steps = new Map();  // the fields of an element by their names
    this.bytes = new Bytes(facts, data);
    this.model = new Model(this.bytes, facts);
    this.graph = new GraphView(this, ids);
    say($(`${ids}title`), facts.file);
    const [graph] = this.model.graphs;
    $(`${ids}title`).append(make("span", "kind", graph === undefined ? "" : many(graph.nodes.length, "node")));
    this.users = new Map();
    this.makers = new Map();
    for (const one of this.model.graphs) {
      for (const node of one.nodes) {
        for (const name of node.outputs) this.makers.set(name, node);
        for (const name of node.inputs) {
          if (!this.users.has(name)) this.users.set(name, []);
          this.users.get(name).push(node);
        }
      }
    }
    const nodes = this.model.graphs.flatMap((one) => one.nodes);
    this.byStart = new Map(nodes.map((node) => [node.element.start, node]));
  }

  get colors() {
    return this.page.colors;
  }

  onSelect(listener) {
    this.selecting.push(listener);
  }

  onTheme(listener) {
    this.page.theming.push(listener);
  }

  tip(event, lines) {
    this.page.tip(event, lines);
  }

  announce(text) {
    say($("said"), text);
  }

  showModule() {}

  select(element, from = "") {
    for (const listener of this.selecting) listener(element, from);
    if (from === "graph") this.page.selectedIn(this, element);
  }

  // The element at a path by number, as deep as it is there; null for none.
  resolve(path) {
    let at = this.bytes.root;
    for (const step of path.match(/(?:[^.[\]]|\[[^\]]*\])+/g) ?? []) {
      if (!this.steps.has(at)) this.steps.set(at, new Map(this.bytes.kids(at).map((kid) => [kid.step, kid])));
      const next = this.steps.get(at).get(step);
      if (next === undefined) break;
      at = next;
    }
    return at === this.bytes.root ? null : at;
  }

  // The node that an element is; undefined for others. Elements of one place may be several objects.
  nodeOf(element) {
    return element.message === "NodeProto" ? this.byStart.get(element.start) : undefined;
  }

  // The nodes that an element concerns, the one to look at first: those about it, else those that use the weight or
  // make the value that it is.
  nodesOf(element) {
    for (let at = element; at !== null; at = at.parent) {
      const node = this.nodeOf(at);
      if (node !== undefined) return [node];
      const name = fieldText(this.bytes, at, "name");
      if (at.message === "TensorProto") return this.users.get(name) ?? [];
      if (at.message === "ValueInfoProto") {
        return this.makers.has(name) ? [this.makers.get(name)] : (this.users.get(name) ?? []).slice(0, 1);
      }
    }
    return [];
  }

  // Notes a difference at an element; the nodes about it have changed, too.
  note(element, kind) {
    const isNode = this.nodeOf(element) !== undefined;
    let rank = kind.startsWith("only") && isNode ? ONLY : CHANGED, at = element;
    while (at !== null && at.message !== "TensorProto" && at.message !== "NodeProto") at = at.parent;
    if (at === null) return;
    if (at.message === "TensorProto") {
      for (const node of this.users.get(fieldText(this.bytes, at, "name")) ?? []) this.raise(node, WEIGHTS);
      rank = CHANGED;
    }
    for (; at !== null; at = at.parent) {
      const node = this.nodeOf(at);
      if (node === undefined) continue;
      this.raise(node, rank);
      rank = CHANGED;
    }
  }

  raise(node, rank) {
    this.ranks.set(node, Math.max(rank, this.ranks.get(node) ?? SAME));
  }

  // Jumps to what an element concerns. False where it is in no graph.
  show(element) {
    const [node] = this.nodesOf(element);
    if (node === undefined) return false;
    this.graph.selected(node.element, "");
    return true;
  }

  rankOf(node) {
    return this.ranks.get(node) ?? SAME;
  }

  colorOf(rank) {
    const { colors } = this;
    return [colors.same, colors.otherWeights, colors.changed, colors[this.only]][Math.max(rank, SAME)];
  }

  edgeOf() {
    return null;
  }

  markOf() {
    return "";
  }

  textOf(node) {
    return RANK_NAMES[this.rankOf(node)];
  }
}
