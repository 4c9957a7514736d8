// Search: names of nodes, values, tensors and operators; an offset such as 0x1f3a; a path such as graph.node[3].

class Search {
  constructor(app) {
    this.app = app;
    this.input = $("search");
    this.results = [];
    this.at = 0;
    this.entries = null;
    this.list = new List($("results"), 24, () => this.results.length, (row, index) => this.fill(row, index));
    this.input.addEventListener("input", () => this.run());
    this.input.addEventListener("focus", () => this.run());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("blur", () => setTimeout(() => this.close(), 200));
  }

  // Everything that has a name: [what it is, text, text in small letters, element].
  gather() {
    this.entries = [];
    const put = (kind, text, element) => {
      if (text) this.entries.push({ kind, text, small: text.toLowerCase(), element });
    };
    for (const graph of this.app.model.graphs) {
      for (const node of graph.nodes) {
        const named = `${node.op} ${node.name}`;
        put("node", node.name ? named : `${node.op} -> ${node.outputs[0] ?? ""}`, node.element);
      }
    }
    for (const tensor of this.app.model.tensors) put("tensor", tensor.name, tensor.element);
    for (const graph of this.app.model.graphs) {
      for (const [name, element] of graph.values) put("value", name, element);
      for (const node of graph.nodes) for (const name of node.outputs) put("output of", name, node.element);
    }
  }

  run() {
    const text = this.input.value.trim(), small = text.toLowerCase(), { bytes } = this.app;
    if (this.entries === null) this.gather();
    this.results = [];
    this.at = 0;
    if (!text) {
      this.close();
      return;
    }
    const offset = /^(0x[0-9a-f]+|\d+)$/i.test(text) ? Number(text) : -1;
    if (offset >= 0 && offset < this.app.facts.size) {
      const chain = bytes.chainAt(offset), inner = chain[chain.length - 1];
      const where = inner === undefined ? "" : `${offsetText(offset)} is in ${inner.path}`;
      if (inner !== undefined) this.results.push({ kind: "byte", text: where, element: inner });
    }
    const found = bytes.find(text);
    if (found !== null) this.results.push({ kind: "field", text: found.path, element: found });
    const exact = [], others = [];
    for (const entry of this.entries) {
      const place = entry.small.indexOf(small);
      if (place < 0) continue;
      const whole = entry.small.length === small.length || (place > 0 && entry.small.endsWith(` ${small}`));
      (whole ? exact : others).push(entry);
    }
    this.results = this.results.concat(exact, others);
    $("results").hidden = false;
    $("results").style.height = `${Math.min(14, this.results.length || 1) * 24 + 2}px`;
    say($("found"), this.results.length ? count(this.results.length) : "nothing");
    this.list.refresh();
    this.list.goTo(0);
  }

  fill(row, index) {
    const { kind, text, element } = this.results[index];
    row.append(make("span", "kind", kind), make("span", "name", text));
    row.classList.toggle("chosen", index === this.at);
    row.addEventListener("pointerdown", () => this.take(element));
  }

  take(element) {
    this.app.select(element);
    this.close();
  }

  close() {
    $("results").hidden = true;
    say($("found"), "");
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && this.results.length) {
      this.at = Math.max(0, Math.min(this.results.length - 1, this.at + step));
      this.list.refresh();
      this.list.show(this.at);
    } else if (event.key === "Enter" && this.results.length) {
      this.take(this.results[this.at].element);
    } else if (event.key === "Escape") {
      this.input.value = "";
      this.close();
      this.input.blur();
    } else {
      return;
    }
    event.preventDefault();
  }
}
