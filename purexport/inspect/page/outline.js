// The modules as a list beside the graph: for the keyboard, for readers of screens, and to see how they nest.

class Outline {
  constructor(app, graph) {
    this.app = app;
    this.graph = graph;
    this.panel = $("modules");
    this.box = $("modules-tree");
    this.rows = [];
    this.at = 0;
    this.list = new List(this.box, 22, () => this.rows.length, (row, index) => this.fill(row, index));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.covered = 0;
    this.panel.addEventListener("toggle", () => this.toggled());
    graph.onFold(() => this.refresh());
    this.refresh();
  }

  // The graph makes room for the list.
  toggled() {
    const before = this.covered;
    this.covered = this.graph.covered;
    this.graph.move((before - this.covered) / 2, 0);
    this.refresh();
  }

  refresh() {
    const { modules } = this.graph;
    this.panel.hidden = modules === undefined || !modules.any;
    if (this.panel.hidden || !this.panel.open) return;
    this.rows = [];
    const collect = (group, depth) => {
      for (const kid of modules.kids(group)) {
        if (typeof kid === "number") continue;
        this.rows.push([kid, depth]);
        if (kid.open) collect(kid, depth + 1);
      }
    };
    collect(modules.root, 0);
    this.at = Math.min(this.at, this.rows.length - 1);
    this.list.refresh();
    this.point();
  }

  fill(div, index) {
    const [group, depth] = this.rows[index];
    div.id = `module-${index}`;
    div.setAttribute("role", "treeitem");
    div.setAttribute("aria-expanded", String(group.open));
    div.setAttribute("aria-level", String(depth + 1));
    div.setAttribute("aria-selected", String(index === this.at));
    div.style.paddingLeft = `${6 + 12 * depth}px`;
    div.classList.toggle("chosen", index === this.at);
    const mark = make("span", "mark", group.open ? "\u25be" : "\u25b8");
    div.append(mark, make("span", "name", group.title), make("span", "text", many(group.size, "node")));
    div.addEventListener("click", () => {
      this.at = index;
      this.toggle(!group.open);
    });
  }

  toggle(open) {
    const row = this.rows[this.at];
    if (row === undefined || row[0].open === open) return;
    this.graph.fold(row[0], open);
    this.app.showModule(row[0]);
  }

  point() {
    if (this.rows.length) this.box.setAttribute("aria-activedescendant", `module-${this.at}`);
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], [group] = this.rows[this.at] ?? [null];
    if (group === null) return;
    if (step !== undefined) this.at = Math.max(0, Math.min(this.rows.length - 1, this.at + step));
    else if (event.key === "Home") this.at = 0;
    else if (event.key === "End") this.at = this.rows.length - 1;
    else if (event.key === "Enter" || event.key === " ") this.toggle(!group.open);
    else if (event.key === "ArrowRight") this.toggle(true);
    else if (event.key === "ArrowLeft" && group.open) this.toggle(false);
    else if (event.key === "ArrowLeft") {
      const parent = this.rows.findIndex((row) => row[0] === group.parent);
      if (parent >= 0) this.at = parent;
    } else return;
    event.preventDefault();
    event.stopPropagation();
    this.list.refresh();
    this.list.show(this.at);
    this.point();
    this.graph.moveIn(this.graph.placeOf(this.rows[this.at][0]));
  }
}
