// Search: names of nodes, values, tensors and operators; an offset such as 0x1f3a; a path such as graph.node[3].
// `op:conv`, or an operator's name as it is written, finds the nodes of that operator. What was found is marked in the
// graph; Enter goes from one to the next, and with Shift back.

class Search {
  constructor(app) {
    this.app = app;
    this.input = $("search");
    this.results = [];
    this.at = 0;
    this.taken = false;  // one of the results was chosen
    this.entries = null;
    this.list = new List($("results"), 24, () => this.results.length, (row, index) => this.fill(row, index));
    this.input.addEventListener("input", () => this.run());
    this.input.addEventListener("focus", () => this.taken || this.run());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("blur", () => setTimeout(() => this.close(), 200));
    $("search-next").addEventListener("click", () => this.step(1));
    $("search-back").addEventListener("click", () => this.step(-1));
  }

  // Everything that has a name: [what it is, text, text in small letters, element].
  gather() {
    this.entries = [];
    this.operators = new Map();  // nodes by operator, in small letters
    const put = (kind, text, element) => {
      const entry = { kind, text, small: text.toLowerCase(), element };
      if (text) this.entries.push(entry);
      return entry;
    };
    for (const graph of this.app.model.graphs) {
      for (const node of graph.nodes) {
        const named = `${node.op} ${node.name}`, op = node.op.toLowerCase();
        const entry = put("node", node.name ? named : `${node.op} -> ${node.outputs[0] ?? ""}`, node.element);
        entry.node = node;
        if (this.operators.has(op)) this.operators.get(op).push(entry);
        else this.operators.set(op, [entry]);
      }
    }
    for (const tensor of this.app.model.tensors) put("tensor", tensor.name, tensor.element);
    for (const graph of this.app.model.graphs) {
      for (const [name, element] of graph.values) put("value", name, element);
      for (const node of graph.nodes) for (const name of node.outputs) put("output of", name, node.element);
    }
  }

  run() {
    const text = this.input.value.trim();
    if (this.entries === null) this.gather();
    this.results = text ? this.seek(text) : [];
    this.at = 0;
    this.taken = false;
    this.app.graph.setFound(this.results.flatMap((result) => (result.node === undefined ? [] : [result.node])));
    if (!text) {
      this.close();
      this.tell();
      return;
    }
    $("results").hidden = false;
    $("results").style.height = `${Math.min(14, this.results.length || 1) * 24 + 2}px`;
    this.tell();
    this.list.refresh();
    this.list.goTo(0);
  }

  seek(text) {
    const small = text.toLowerCase(), { bytes } = this.app, first = [];
    const asked = /^op:\s*(.*)$/.exec(small);
    if (asked !== null) {
      const exact = this.operators.get(asked[1]);
      if (exact !== undefined) return exact;
      return [...this.operators].filter(([op]) => op.includes(asked[1])).flatMap(([, entries]) => entries);
    }
    const offset = /^(0x[0-9a-f]+|\d+)$/i.test(text) ? Number(text) : -1;
    if (offset >= 0 && offset < this.app.facts.size) {
      const chain = bytes.chainAt(offset), inner = chain[chain.length - 1];
      const where = inner === undefined ? "" : `${offsetText(offset)} is in ${inner.path}`;
      if (inner !== undefined) first.push({ kind: "byte", text: where, element: inner });
    }
    const found = bytes.find(text);
    if (found !== null) first.push({ kind: "field", text: found.path, element: found });
    const same = (this.operators.get(small) ?? []).filter(({ node }) => node.op === text);
    if (same.length) return first.concat(same);
    const exact = [], others = [];
    for (const entry of this.entries) {
      const place = entry.small.indexOf(small);
      if (place < 0) continue;
      const whole = entry.small.length === small.length || (place > 0 && entry.small.endsWith(` ${small}`));
      (whole ? exact : others).push(entry);
    }
    return first.concat(exact, others);
  }

  fill(row, index) {
    const { kind, text } = this.results[index];
    row.append(make("span", "kind", kind), make("span", "name", text));
    row.classList.toggle("chosen", index === this.at);
    row.addEventListener("pointerdown", () => this.take(index));
  }

  take(index) {
    this.at = index;
    this.taken = true;
    this.app.select(this.results[index].element);
    this.close();
    this.tell();
  }

  // The next result, or the one before; from the last to the first.
  step(by) {
    const total = this.results.length;
    if (total) this.take(this.taken ? (this.at + by + total) % total : this.at);
  }

  close() {
    $("results").hidden = true;
  }

  tell() {
    const total = this.results.length, isEmpty = !this.input.value.trim();
    const text = this.taken ? `${count(this.at + 1)} of ${count(total)}` : total ? `${count(total)} found` : "nothing";
    say($("found"), isEmpty ? "" : text);
    for (const id of ["search-back", "search-next"]) $(id).hidden = isEmpty || total < 2;
    if (!isEmpty) this.app.announce(text);
  }

  clear() {
    this.input.value = "";
    this.run();
    this.input.blur();
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && this.results.length) {
      this.at = Math.max(0, Math.min(this.results.length - 1, this.at + step));
      this.taken = false;
      $("results").hidden = false;
      this.list.refresh();
      this.list.show(this.at);
    } else if (event.key === "Enter" && this.results.length) {
      this.step(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      this.clear();
    } else {
      return;
    }
    event.preventDefault();
  }
}
