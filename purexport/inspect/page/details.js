// What is known of the chosen field: where it is, what it means, its bytes with their meaning.

const MOST_OPERATORS = 12, MOST_PORTS = 100, MOST_ROWS = 200, OCTETS = 8, MOST_LINES = 4;

class Details {
  constructor(app) {
    this.app = app;
    this.box = $("details");
    app.onSelect((element) => this.show(element));
    app.onTheme(() => this.element !== undefined && this.show(this.element));
  }

  // Before anything is chosen: the file.
  model() {
    const { facts, model } = this.app, box = clear(this.box);
    box.append(make("h2", "", facts.file));
    const rows = [["size", `${sizeText(facts.size)} (${count(facts.size)} bytes)`]];
    for (const [name, value] of model.info) rows.push([name, value]);
    if (model.graphs.length) {
      const [graph] = model.graphs;
      rows.push(["nodes", count(graph.nodes.length)]);
      for (const [title, names] of [["input", graph.fed], ["output", graph.outputs]]) {
        for (const list of sharing(names, () => "")) rows.push([title, this.port(graph, list.map((at) => names[at]))]);
      }
    }
    rows.push(["tensors", count(model.tensors.length)]);
    for (const file of facts.files) rows.push(["data file", fileText(file)]);
    box.append(this.table(rows));
    const { layers } = this.app.errors;
    if (layers.length) box.append(make("h3", "", "Largest error by module"), this.table(layers));
    const { store } = this.app.bytes;
    box.append(make("p", "faint", `This page holds ${sizeText(store.bytes.length)} of the file's bytes: the structure. `
      + "Of the values of tensors, and of other long fields, it has the first and the last bytes only."));
    box.append(make("p", "faint", "Made by " + facts.made_by + ". Press ? for the keys."));
  }

  // An input or output with its type, or a family of them.
  port(graph, [first, ...more]) {
    const type = graph.values.has(first) ? valueType(this.app.bytes, graph.values.get(first)) : "";
    return more.length ? `${first} and ${count(more.length)} more alike  ${type}` : `${first}  ${type}`;
  }

  show(element) {
    this.element = element;
    const { bytes } = this.app, box = clear(this.box);
    box.append(this.trail(element));
    const kind = element.message ?? element.field?.kind ?? element.wireName;
    const title = make("h2", "", element.step);
    title.append(make("span", "kind", kind));
    box.append(title);
    if (element.problem) box.append(make("p", "problem", `${element.problem} (byte ${offsetText(element.bad)})`));
    const text = textOf(bytes, element);
    if (text) box.append(make("p", "value-text", text.slice(0, 4000)));
    const rows = [
      ["bytes", `${offsetText(element.start)} to ${offsetText(element.stop)} (${element.start} to ${element.stop})`],
      ["head", `${element.body - element.start} bytes: field ${element.number}, wire type ${element.wireName || "-"}`],
      ["payload", `${count(element.payload)} bytes`],
    ];
    box.append(this.table(rows));
    const graph = element.message === "NodeProto" ? this.app.graph.byStart.get(element.start) : undefined;
    if (graph !== undefined) this.node(box, graph, element);
    const tensor = this.app.tensors.byElement.get(element);
    if (tensor !== undefined) this.tensor(box, tensor);
    this.octets(box, element);
  }

  table(rows) {
    const table = make("table");
    for (const [name, value] of rows) {
      const row = make("tr");
      row.append(make("th", "", name), make("td", "", value));
      table.append(row);
    }
    return table;
  }

  trail(element) {
    const nav = make("nav", "trail"), chain = [];
    for (let at = element.parent; at !== null && at.parent !== null; at = at.parent) chain.unshift(at);
    const file = make("button", "link", this.app.facts.file);
    file.addEventListener("click", () => this.model());
    nav.append(file);
    for (const at of chain) nav.append(make("span", "faint", " \u203a "), this.link(at.step, at));
    return nav;
  }

  link(text, element) {
    const link = make("button", "link", text);
    link.addEventListener("click", () => this.app.select(element));
    return link;
  }

  // A module: what is in it, what it takes and gives.
  module(group) {
    const { graph: view } = this.app, box = clear(this.box), nodes = view.modules.nodesIn(group);
    this.element = undefined;
    const title = make("h2", "", group.path);
    title.append(make("span", "kind", "module"));
    box.append(title);
    const operators = new Map();
    for (const node of nodes) operators.set(node.op, (operators.get(node.op) ?? 0) + 1);
    const most = [...operators].sort((a, b) => b[1] - a[1]).slice(0, MOST_OPERATORS);
    const rows = [["nodes", count(group.size)], ["operators", most.map(([op, times]) => `${op} ${times}`).join(", ")]];
    const vertex = view.view.vertexAt(group.start);
    if (view.view.groups[vertex] === group) {
      const given = view.given(vertex).slice(0, MOST_OPERATORS);
      for (const name of given) rows.push(["gives", `${name}  ${view.typeOf(name)}`]);
    }
    box.append(this.table(rows), this.foldButton(group));
    for (const [at, node] of nodes.slice(0, MOST_PORTS).entries()) {
      const row = make("div", "port"), text = `${node.op} ${node.name || node.outputs[0] || ""}`;
      row.append(make("span", "faint", String(at + 1)), this.link(text, node.element));
      box.append(row);
    }
    if (nodes.length > MOST_PORTS) box.append(make("p", "faint", `and ${count(nodes.length - MOST_PORTS)} more`));
  }

  foldButton(group) {
    const button = make("button", "", group.open ? "Fold" : "Unfold");
    button.addEventListener("click", () => {
      this.app.graph.fold(group, !group.open);
      this.module(group);
    });
    return button;
  }

  // The modules about a node; each folds.
  modules(box, element) {
    const groups = this.app.graph.groupsAbout(element);
    if (!groups.length) return;
    const row = make("div", "modules");
    row.append(make("span", "faint", "module "));
    groups.forEach((group, at) => {
      const button = make("button", "link", group.name);
      button.title = `Fold ${group.path}`;
      button.addEventListener("click", () => {
        this.app.graph.fold(group, false);
        this.app.showModule(group);
      });
      if (at) row.append(make("span", "faint", " \u203a "));
      row.append(button);
    });
    box.append(row);
  }

  // What a node takes and gives, each with who makes or uses it.
  node(box, graph, element) {
    this.modules(box, element);
    const errors = this.app.errors.rowsOf(graph.nodes.find((one) => one.element.start === element.start));
    if (errors.length) box.append(this.table(errors));
    const node = graph.nodes.find((one) => one.element.start === element.start), { bytes } = this.app;
    const maker = new Map();
    for (const one of graph.nodes) for (const name of one.outputs) maker.set(name, one);
    const list = make("div", "ports");
    const add = (title, name, links) => {
      const row = make("div", "port");
      row.append(make("span", "faint", title), make("span", "name", name || "(left out)"));
      if (graph.values.has(name)) row.append(make("span", "faint", valueType(bytes, graph.values.get(name))));
      row.append(...links);
      list.append(row);
    };
    for (const name of node.inputs.slice(0, MOST_PORTS)) {
      const links = [];
      if (maker.has(name)) links.push(this.link(`from ${maker.get(name).op}`, maker.get(name).element));
      else if (graph.weights.has(name)) {
        const tensor = graph.weights.get(name);
        links.push(this.link(`${dtypeName(bytes, tensor.code)}[${tensor.dims.join(", ")}]`, tensor.element));
      }
      add("in", name, links);
    }
    for (const name of node.outputs.slice(0, MOST_PORTS)) {
      const users = graph.nodes.filter((one) => one.inputs.includes(name));
      const links = users.slice(0, 6).map((one) => this.link(`to ${one.op}`, one.element));
      if (users.length > 6) links.push(make("span", "faint", `and ${users.length - 6} more`));
      add("out", name, links);
    }
    for (const inner of node.graphs.slice(0, MOST_PORTS)) {
      const found = this.app.model.byElement.get(inner);
      const link = make("button", "link", `open the graph of ${many(found.nodes.length, "node")}`);
      link.addEventListener("click", () => {
        this.app.tab("graph");
        this.app.graph.open(found);
      });
      list.append(link);
    }
    const ends = [node.inputs, node.outputs, node.graphs];
    const more = ends.reduce((sum, list) => sum + Math.max(0, list.length - MOST_PORTS), 0);
    if (more) list.append(make("span", "faint", `and ${count(more)} more`));
    box.append(list);
  }

  tensor(box, tensor) {
    const { statistics } = tensor, file = tensor.file ? ` of ${tensor.file}` : "";
    const rows = [["values", `${sizeText(tensor.size)} at ${offsetText(tensor.offset)}${file}`]];
    if (statistics !== null) {
      rows.push(["min", String(statistics.low)], ["max", String(statistics.high)], ["mean", String(statistics.mean)]);
      rows.push(["std", statistics.std === null ? "too large" : String(statistics.std)]);
      rows.push(["of", sampleText(statistics)]);
    }
    box.append(this.table(rows));
    if (statistics === null) return;
    const canvas = make("canvas", "large-histogram");
    box.append(canvas);
    drawHistogram(canvas, statistics, this.app.colors, 300, 90);
  }

  // The bytes of the field and of those in it, on the left, and what they mean.
  octets(box, element) {
    const { bytes } = this.app, table = make("table", "hex"), todo = [element];
    let rows = 0;
    while (todo.length && rows < MOST_ROWS) {
      const at = todo.pop(), stop = at.message === null ? at.stop : at.body;
      if (at.message !== null) todo.push(...bytes.kids(at).slice(0, MOST_ROWS).reverse());
      const lines = Math.max(1, Math.min(MOST_LINES, Math.ceil((stop - at.start) / OCTETS)));
      for (let line = 0; line < lines; line++) this.line(table, element, at, stop, line, lines);
      rows += lines;
      if (stop > at.start + lines * OCTETS) {
        const row = make("tr"), left = count(stop - at.start - lines * OCTETS);
        row.append(make("td"), make("td", "faint", `... ${left} more bytes`), make("td"));
        table.append(row);
      }
    }
    box.append(make("h3", "", "Bytes and their meaning"), table);
    if (todo.length) box.append(make("p", "faint", "... and more: choose a field inside."));
  }

  // The first line of a field has its meaning, beside all of them.
  line(table, root, at, stop, line, lines) {
    const { bytes } = this.app, from = at.start + line * OCTETS, row = make("tr"), octets = [];
    const offset = make("td", "offset", from.toString(16).padStart(6, "0"));
    for (let offset = from; offset < Math.min(stop, from + OCTETS); offset++) {
      octets.push(hexByte(bytes.store.at(offset)));
    }
    row.append(offset, make("td", "octets", octets.join(" ")));
    row.addEventListener("click", () => this.app.select(at));
    row.addEventListener("mouseenter", () => this.app.strip.hover(at));
    if (line === 0) {
      const text = textOf(bytes, at), meaning = make("td", "meaning");
      meaning.rowSpan = lines;
      meaning.style.paddingLeft = `${10 * (at.depth - root.depth)}px`;
      meaning.append(make("span", "name", at.step));
      if (text) meaning.append(make("span", "", `${at.message === null ? " = " : "  "}${text.slice(0, 200)}`));
      if (at.problem) meaning.append(make("span", "problem", ` ${at.problem}`));
      row.append(meaning);
    }
    table.append(row);
  }
}
