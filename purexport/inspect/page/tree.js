// The tree of fields: the rows that are open, in one flat list. Fields of which there are many are grouped by name.

const MANY = 50;

class Tree {
  constructor(app) {
    this.app = app;
    this.rows = this.inside(app.bytes.root, 0);
    this.chosen = null;
    this.box = $("tree");
    this.list = new List(this.box, 22, () => this.rows.length, (row, index) => this.fill(row, this.rows[index]));
    this.box.addEventListener("keydown", (event) => this.key(event));
    app.onSelect((element) => this.reveal(element));
    if (this.rows.length) {
      const graph = this.rows.findIndex((row) => row.element && row.element.message === "GraphProto");
      if (graph >= 0) this.toggle(graph);
    }
    this.list.refresh();
  }

  // The rows below an element: its fields, or groups of them.
  inside(element, depth) {
    const kids = this.app.bytes.kids(element);
    const row = (kid) => ({ element: kid, depth, open: false, canOpen: this.canOpen(kid) });
    if (kids.length <= MANY) return kids.map(row);
    const groups = new Map();
    for (const kid of kids) {
      const name = kid.field === null ? kid.step : kid.field.name;
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(kid);
    }
    return [...groups].flatMap(([name, list]) => (list.length <= 3 ? list.map(row)
      : [{ element: null, owner: element, name, list, depth, open: false, canOpen: true }]));
  }

  canOpen(element) {
    return element.message !== null && element.payload > 0;
  }

  below(row) {
    if (row.element !== null) return this.inside(row.element, row.depth + 1);
    return row.list.map((kid) => ({ element: kid, depth: row.depth + 1, open: false, canOpen: this.canOpen(kid) }));
  }

  toggle(index) {
    const row = this.rows[index];
    if (!row.canOpen) return;
    row.open = !row.open;
    let stop = index + 1;
    if (row.open) {
      this.rows = this.rows.slice(0, stop).concat(this.below(row), this.rows.slice(stop));
    } else {
      while (stop < this.rows.length && this.rows[stop].depth > row.depth) stop++;
      this.rows.splice(index + 1, stop - index - 1);
    }
  }

  fill(div, row) {
    const { element } = row;
    div.classList.toggle("chosen", element !== null && element === this.chosen);
    div.style.paddingLeft = `${6 + 14 * row.depth}px`;
    const mark = make("span", "mark", row.canOpen ? (row.open ? "\u25be" : "\u25b8") : "");
    const name = make("span", "name", element === null ? `${row.name} ` : element.step);
    const text = element === null ? `${count(row.list.length)} of them` : textOf(this.app.bytes, element);
    div.append(mark, name, make("span", "text", text.slice(0, 300)));
    if (element !== null && element.problem) {
      div.classList.add("bad");
      div.append(make("span", "problem", element.problem));
    }
    const toggle = () => {
      this.toggle(this.rows.indexOf(row));
      this.list.refresh();
    };
    mark.addEventListener("click", (event) => {
      event.stopPropagation();
      toggle();
    });
    div.addEventListener("click", () => (element === null ? toggle() : this.app.select(element)));
    div.addEventListener("dblclick", toggle);
    div.addEventListener("mouseenter", () => element !== null && this.app.strip.hover(element));
  }

  // Opens what is about an element, and shows its row.
  reveal(element) {
    const chain = [];
    for (let at = element; at.parent !== null; at = at.parent) chain.unshift(at);
    let index = -1;
    for (const step of chain) {
      if (index >= 0 && !this.rows[index].open) this.toggle(index);
      index = this.seek(step, index + 1);
      if (index < 0) return;
    }
    this.chosen = element;
    this.list.refresh();
    this.list.show(index);
  }

  // The row of an element from `index` on; opens the group that it is in.
  seek(element, index) {
    for (let at = index; at < this.rows.length; at++) {
      const row = this.rows[at];
      if (row.element === element) return at;
      if (row.element === null && row.owner === element.parent && row.list.includes(element)) {
        if (!row.open) this.toggle(at);
        return at + 1 + row.list.indexOf(element) < this.rows.length ? this.seekRow(element, at + 1) : -1;
      }
    }
    return -1;
  }

  seekRow(element, index) {
    for (let at = index; at < this.rows.length; at++) if (this.rows[at].element === element) return at;
    return -1;
  }

  key(event) {
    const at = this.rows.findIndex((row) => row.element !== null && row.element === this.chosen);
    const row = this.rows[at];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      for (let next = at + step; next >= 0 && next < this.rows.length; next += step) {
        if (this.rows[next].element !== null) {
          this.app.select(this.rows[next].element);
          break;
        }
      }
    } else if (event.key === "ArrowRight" && row && row.canOpen && !row.open) {
      this.toggle(at);
      this.list.refresh();
    } else if (event.key === "ArrowLeft" && row && row.open) {
      this.toggle(at);
      this.list.refresh();
    } else if (event.key === "ArrowLeft" && row && row.element.parent.parent !== null) {
      this.app.select(row.element.parent);
    } else {
      return;
    }
    event.preventDefault();
  }
}
