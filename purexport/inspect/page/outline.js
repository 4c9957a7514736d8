// The model as a list beside the graph: inputs, outputs, modules and nodes of the graph that is shown. It is for the
// keyboard, for readers of screens, and to see how modules nest.

class Outline {
  constructor(app, graph) {
    this.app = app;
    this.graph = graph;
    this.box = $("outline");
    this.rows = [];  // { kind, ... }: "head" of a section, "input", "output", "module", "node"
    this.at = -1;
    this.opened = new Map();  // sections by title: whether they are open, where that was changed
    this.list = new List(this.box, 22, () => this.rows.length, (row, index) => this.fill(row, index));
    this.box.addEventListener("keydown", (event) => this.key(event));
    graph.onFold(() => this.refresh());
    app.onSelect((element, from) => this.selected(element, from));
    this.refresh();
  }

  refresh() {
    const { graph, modules } = this.graph, before = this.rows[this.at];
    if (graph === null) return;
    this.rows = [];
    this.section("Inputs", graph.fed.length, () => this.ports(graph.fed, "input"));
    this.section("Outputs", graph.outputs.length, () => this.ports(graph.outputs, "output"));
    if (modules.any) this.section(modules.named ? "Modules" : "Parts", 1, () => this.modules(modules));
    this.section("Nodes", graph.nodes.length, () => {
      for (const node of graph.nodes) this.rows.push({ kind: "node", node, depth: 1 });
    });
    this.at = before === undefined ? -1 : this.rows.findIndex((row) => isSame(row, before));
    this.list.refresh();
    this.point();
  }

  // A heading, and where it is open what `put` adds below it.
  section(title, number, put, depth = 0) {
    if (!number) return;
    const open = this.opened.get(title) ?? depth === 0;
    this.rows.push({ kind: "head", title, open, number, depth });
    if (open) put();
  }

  // Inputs or outputs; a family of many, as keys and values of layers, is one row that opens.
  ports(names, kind) {
    const put = (list, depth) => {
      for (const at of list) this.rows.push({ kind, name: names[at], depth });
    };
    for (const list of sharing(names, () => "")) {
      if (list.length === 1) put(list, 1);
      else this.section(sharedName(list.map((at) => names[at])), list.length, () => put(list, 2), 1);
    }
  }

  modules(modules) {
    const collect = (group, depth) => {
      for (const kid of modules.kids(group)) {
        if (typeof kid === "number") continue;
        this.rows.push({ kind: "module", group: kid, depth });
        if (kid.open) collect(kid, depth + 1);
      }
    };
    collect(modules.root, 1);
  }

  fill(div, index) {
    const row = this.rows[index], isOpen = this.openOf(row);
    div.id = `outline-${index}`;
    div.setAttribute("role", "treeitem");
    if (isOpen !== null) div.setAttribute("aria-expanded", String(isOpen));
    div.setAttribute("aria-level", String(row.depth + 1));
    div.setAttribute("aria-selected", String(index === this.at));
    div.style.paddingLeft = `${6 + 12 * row.depth}px`;
    div.classList.toggle("chosen", index === this.at);
    div.classList.toggle("head", row.kind === "head" && row.depth === 0);
    if (isOpen !== null) div.append(make("span", "mark", isOpen ? "\u25be" : "\u25b8"));
    if (row.kind === "node") div.append(make("span", `swatch ${familyOf(row.node.op)}`));
    const text = make("span", row.kind === "node" ? "text end" : "text");
    text.append(make("span", "", this.textOf(row).slice(-300)));
    div.append(make("span", "name", this.nameOf(row)), text);
    if (isOpen === null) div.title = plain(`${this.nameOf(row)} ${this.textOf(row)}`);
    div.addEventListener("click", () => {
      this.at = index;
      if (isOpen === null) this.take(row);
      else this.toggle(!isOpen);
    });
  }

  // Whether a row that has others below is open; null for one that has none.
  openOf(row) {
    return row.kind === "head" ? row.open : row.kind === "module" ? row.group.open : null;
  }

  nameOf(row) {
    if (row.kind === "head") return row.title;
    return row.kind === "module" ? row.group.title : row.kind === "node" ? row.node.op : row.name;
  }

  textOf(row) {
    if (row.kind === "head") return row.number > 1 || row.depth ? count(row.number) : "";
    if (row.kind === "module") return many(row.group.size, "node");
    if (row.kind === "node") return row.node.name || `\u2192 ${row.node.outputs[0] ?? ""}`;
    return this.graph.typeOf(row.name);
  }

  // Opens or closes a section, or a module.
  toggle(open) {
    const row = this.rows[this.at], isOpen = row === undefined ? null : this.openOf(row);
    if (isOpen === null || isOpen === open) return;
    if (row.kind === "module") {
      this.graph.fold(row.group, open);
      this.app.showModule(row.group);
    } else {
      this.opened.set(row.title, open);
      this.refresh();
    }
  }

  // Chooses an input, an output or a node, and shows it in the graph.
  take(row) {
    const { graph } = this.graph, element = row.kind === "node" ? row.node.element : graph.values.get(row.name);
    this.app.tab("graph");
    if (element !== undefined) this.app.select(element, "outline");
    if (row.kind !== "node") this.graph.showPort(row.name, row.kind === "output");
    this.list.refresh();
    this.point();
  }

  // Marks the row of a node that was chosen elsewhere.
  selected(element, from) {
    if (from === "outline") return;
    const at = this.rows.findIndex((row) => row.kind === "node" && row.node.element.start === element.start);
    if (at < 0) return;
    this.at = at;
    this.list.refresh();
    this.list.show(at);
    this.point();
  }

  point() {
    if (this.at >= 0) this.box.setAttribute("aria-activedescendant", `outline-${this.at}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], row = this.rows[Math.max(this.at, 0)];
    if (row === undefined) return;
    const isOpen = this.openOf(row);
    if (this.at < 0 && event.key.startsWith("Arrow")) this.at = 0;
    else if (step !== undefined) this.at = Math.max(0, Math.min(this.rows.length - 1, this.at + step));
    else if (event.key === "Home") this.at = 0;
    else if (event.key === "End") this.at = this.rows.length - 1;
    else if ((event.key === "Enter" || event.key === " ") && isOpen === null) this.take(row);
    else if (event.key === "Enter" || event.key === " ") this.toggle(!isOpen);
    else if (event.key === "ArrowRight") this.toggle(true);
    else if (event.key === "ArrowLeft" && isOpen) this.toggle(false);
    else if (event.key === "ArrowLeft") {
      while (this.at > 0 && this.rows[this.at].depth >= row.depth) this.at--;
    } else return;
    event.preventDefault();
    event.stopPropagation();
    this.list.refresh();
    this.list.show(this.at);
    this.point();
    const { group } = this.rows[this.at];
    if (group !== undefined) this.graph.moveIn(this.graph.placeOf(group));
  }
}

// Whether two rows stand for the same thing, of which the list was made anew.
function isSame(a, b) {
  return a.kind === b.kind && a.title === b.title && a.name === b.name && a.group === b.group && a.node === b.node;
}
