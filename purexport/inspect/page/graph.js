// The graph that is shown: what is folded and chosen, and moving about in it. Wheel and drag move, Ctrl and wheel zoom,
// a click selects or unfolds, a click on the title of a frame folds; the bar on the right is the whole graph.

const TOOLS = 52;  // pixels that the buttons cover
const LEAST_HOME = 0.48;  // the least scale at which a graph opens, so that it can be read
const LABEL = 120;  // pixels of a type beside a line for which there is room, if all can be had

class GraphView extends Pointing {
  // `ids` comes before the ids of its parts, so that a page can have two.
  constructor(app, ids = "") {
    super();
    this.app = app;
    this.part = (name) => $(`${ids}graph${name}`);
    this.box = this.part("");
    this.canvas = this.part("-canvas");
    this.bar = this.part("-bar");
    this.graph = null;
    this.layout = null;
    this.scale = 1;
    this.x = this.y = 0;  // the world's point at the upper left
    this.chosen = -1;
    this.awaited = -1;  // what to move to the middle when the graph comes in sight
    this.paint = null;
    this.found = new Set();  // nodes that a search found
    this.folding = [];
    this.waiting = false;
    this.frames = [];
    this.measured = new Map();  // widths of texts
    this.byStart = new Map();  // graphs by where their nodes begin in the file
    this.listen();
    app.onSelect((element, from) => this.selected(element, from));
    app.onTheme(() => this.invalidate());
    this.fillPicker();
    new ResizeObserver(() => this.resize()).observe(this.box);
  }

  get ready() {
    return this.layout !== null && this.box.clientWidth > 0;
  }

  onFold(listener) {
    this.folding.push(listener);
  }

  fillPicker() {
    const { graphs } = this.app.model, picker = this.part("-picker");
    graphs.forEach((graph, at) => {
      const option = make("option", "", `${graph.title} (${many(graph.nodes.length, "node")})`);
      option.value = String(at);
      picker.append(option);
    });
    picker.hidden = graphs.length < 2;
    picker.addEventListener("change", () => this.open(graphs[Number(picker.value)]));
    for (const graph of graphs) {
      for (const node of graph.nodes) this.byStart.set(node.element.start, graph);
    }
    if (graphs.length) this.open(graphs[0]);
    else this.part("-empty").hidden = false;
  }

  open(graph) {
    if (graph === this.graph) return;
    this.graph = graph;
    const start = performance.now();
    if (graph.modules === null) graph.modules = new Modules(graph);
    this.modules = graph.modules;
    this.chosen = -1;
    this.places = new Map(graph.nodes.map((node, at) => [node.element.start, at]));
    this.arrange();
    this.app.timings.layout = Math.round(performance.now() - start);
    this.part("-picker").value = String(this.app.model.graphs.indexOf(graph));
    this.part("-empty").hidden = graph.nodes.length > 0;
    for (const listener of this.folding) listener();
    this.home();
  }

  // Lays out what is folded and unfolded now.
  arrange() {
    this.awaited = -1;
    this.view = this.modules.view();
    this.layout = new Layout(this.view, (vertex, kind) => this.widthOf(vertex, kind));
    this.renew();
  }

  // Forgets what was drawn of boxes.
  renew() {
    this.barImage = null;
    this.shapes = new Map();
    this.painted = new Map();
    this.marks = new Map();
    this.holding = new Map();
    this.invalidate();
  }

  // Boxes in other colours: `rankOf(node)`, `colorOf(rank)`, `markOf(node)`; null for the usual ones.
  setPaint(paint) {
    this.paint = paint;
    this.renew();
  }

  setFound(nodes) {
    this.found = new Set(nodes);
    this.holding = new Map();
    this.invalidate();
  }

  holdsFound(vertex) {
    if (!this.found.size) return false;
    if (!this.holding.has(vertex)) {
      this.holding.set(vertex, this.view.nodesOf(vertex).some((node) => this.found.has(node)));
    }
    return this.holding.get(vertex);
  }

  // Folding ------------------------------------------------------------------------------------------------------

  // Folds or unfolds a group where it is: what was its upper edge stays in its place.
  fold(group, open) {
    const before = this.placeOf(group), held = this.held();
    group.open = open;
    this.folded(held);
    const after = this.placeOf(group);
    if (before !== null && after !== null) {
      this.x += after[0] - before[0];
      this.y += after[1] - before[1];
    }
    if (!open) this.choose(this.view.vertexAt(group.start));
    this.moveIn(after);
    this.app.announce(`${group.path} is ${open ? "unfolded" : "folded"}, ${many(group.size, "node")}`);
  }

  foldAll(open) {
    const isDone = this.modules.setAll(open);
    this.folded(this.held());
    this.home();
    const most = isDone ? "" : `, up to ${count(MOST_UNFOLDED)} boxes`;
    this.app.announce(open ? `all modules are unfolded${most}` : "all modules are folded");
  }

  folded(held) {
    this.arrange();
    this.hold(held);
    for (const listener of this.folding) listener();
  }

  // What is chosen, so that it can be found again when vertices have other numbers.
  held() {
    const { view, chosen } = this;
    if (chosen < 0) return null;
    if (chosen < view.count) return { position: view.starts[chosen] };
    return { name: view.namesOf(chosen)[0], isOutput: chosen >= view.count + view.inputCount };
  }

  hold(held) {
    if (held === null) this.chosen = -1;
    else if (held.name === undefined) this.chosen = this.view.vertexAt(held.position);
    else this.chosen = this.view.portOf(held.name, held.isOutput);
  }

  // The middle and the upper edge of a group, as a box or as a frame; null where something about it is folded.
  placeOf(group) {
    const { view, layout } = this, vertex = view.vertexAt(group.start);
    if (view.groups[vertex] === group) return [layout.x[vertex], layout.top(vertex)];
    if (view.groups[vertex] !== undefined && view.groups[vertex].stop >= group.stop) return null;
    let top = Infinity, left = Infinity, right = -Infinity;
    for (let at = vertex; at < view.count && view.starts[at] < group.stop; at++) {
      top = Math.min(top, layout.top(at));
      left = Math.min(left, layout.x[at]);
      right = Math.max(right, layout.x[at]);
    }
    return [(left + right) / 2, top];
  }

  // Moves the view so that a place is in it.
  moveIn(place) {
    if (place === null || !this.ready) return;
    const [x, y] = place, width = this.canvas.clientWidth / this.scale, height = this.canvas.clientHeight / this.scale;
    if (x < this.x || x > this.x + width) this.x = x - width / 2;
    if (y < this.y || y > this.y + height * 0.9) this.y = y - height / 4;
    this.invalidate();
  }

  // The innermost group that a vertex is, or is in; null for none.
  groupOf(vertex) {
    if (vertex < 0 || vertex >= this.view.count) return null;
    const group = this.view.groups[vertex];
    if (group !== undefined) return group;
    return this.modules.chain(this.view.starts[vertex]).pop() ?? null;
  }

  // The groups about a node, outermost first.
  groupsAbout(element) {
    const at = this.places.get(element.start);
    return at === undefined ? [] : this.modules.chain(this.modules.positions[at]);
  }

  // Moving -------------------------------------------------------------------------------------------------------

  // To the first layer, at a scale at which it can be read.
  home() {
    this.homeless = !this.canvas.clientWidth;  // not in sight yet
    if (this.homeless) return;
    const { left, right, height: deep } = this.layout, width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight - TOOLS;
    const whole = Math.min(width / (right - left + 80), height / (deep + 80));
    const wanted = Math.max(Math.min(1, whole), Math.min(0.8, width / 560));
    const [from, to, middle] = this.reach(height / wanted);
    this.scale = Math.max(Math.min(wanted, width / (to - from + 2 * MARGIN)), LEAST_HOME);
    this.x = ((to - from) * this.scale < width ? (from + to) / 2 : middle) - width / 2 / this.scale;
    this.y = -TOOLS / this.scale;
    this.invalidate();
  }

  // How far the boxes of the first layers reach, down to a depth: [left, right, the middle one].
  reach(deep) {
    const { layout } = this, middles = [];
    let from = Infinity, to = -Infinity;
    for (let at = 0; at < layout.depth && layout.tops[at] < deep; at++) {
      for (const vertex of layout.rows[at]) {
        if (layout.kind[vertex] === BEND) continue;
        const text = layout.kind[vertex] === OUTPUT ? 0 : LABEL;
        from = Math.min(from, layout.x[vertex] - layout.widths[vertex] / 2);
        to = Math.max(to, layout.x[vertex] + Math.max(layout.widths[vertex] / 2, text));
        middles.push(layout.x[vertex]);
      }
    }
    middles.sort((a, b) => a - b);
    return middles.length ? [from, to, middles[middles.length >> 1]] : [0, 0, 0];
  }

  // All of it, as far as it can be seen.
  fit() {
    const { left, right, height: deep } = this.layout, width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    this.scale = Math.max(LEAST, Math.min(1, width / (right - left + 80), height / (deep + 102)));
    this.x = (left + right) / 2 - width / 2 / this.scale;
    this.y = Math.min(-30 / this.scale, deep / 2 - height / 2 / this.scale);
    this.invalidate();
  }

  // Draws at once, so that the browser paints no empty canvas.
  resize() {
    for (const canvas of [this.canvas, this.bar]) {
      canvas.width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
      canvas.height = Math.max(1, Math.round(canvas.clientHeight * devicePixelRatio));
    }
    this.barImage = null;
    if (this.homeless && this.canvas.clientWidth) this.home();
    if (this.awaited >= 0 && this.canvas.clientWidth) this.center(this.awaited);
    this.drawTimed();
  }

  invalidate() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.drawTimed();
    });
  }

  drawTimed() {
    if (!this.ready) return;
    const start = performance.now();
    this.draw();
    this.frames.push(performance.now() - start);
    if (this.frames.length > 600) this.frames.splice(0, 300);
  }

  listen() {
    const { canvas, bar } = this;
    let held = null;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 30 : 1;
      const factor = Math.exp(-event.deltaY * lines / 300);
      if (event.ctrlKey || event.metaKey) this.zoom(factor, event.offsetX, event.offsetY);
      else if (event.shiftKey) this.move(event.deltaY * lines, 0);
      else this.move(event.deltaX * lines, event.deltaY * lines);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.offsetX, y: event.offsetY, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (held === null) {
        this.hover(event);
        return;
      }
      const dx = event.offsetX - held.x, dy = event.offsetY - held.y;
      if (!held.moved && Math.hypot(dx, dy) < 4) return;
      this.move(-dx, -dy);
      held = { x: event.offsetX, y: event.offsetY, moved: true };
    });
    canvas.addEventListener("pointerup", (event) => {
      if (held !== null && !held.moved) this.click(event.offsetX, event.offsetY);
      held = null;
    });
    canvas.addEventListener("pointerleave", () => this.app.tip(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
    const seek = (event) => {
      if (!event.buttons || !this.ready) return;
      const place = event.offsetY / bar.clientHeight * this.layout.height;
      this.y = place - canvas.clientHeight / 2 / this.scale;
      this.intoSight(this.layout.rows[Math.max(0, this.layout.layerAt(place))]);
      this.invalidate();
    };
    bar.addEventListener("pointerdown", (event) => {
      bar.setPointerCapture(event.pointerId);
      seek(event);
    });
    bar.addEventListener("pointermove", seek);
    const buttons = { in: () => this.zoom(1.4), out: () => this.zoom(1 / 1.4), fit: () => this.fit(),
      home: () => this.home(), fold: () => this.foldAll(false), unfold: () => this.foldAll(true) };
    for (const [name, action] of Object.entries(buttons)) this.part(`-${name}`).addEventListener("click", action);
  }

  // Moves sideways where a row would be wholly out of sight.
  intoSight(row) {
    const { x } = this.layout, width = this.canvas.clientWidth / this.scale;
    if (row.length && (x[row[0]] > this.x + width || x[row[row.length - 1]] < this.x)) {
      this.x = x[row[row.length >> 1]] - width / 2;
    }
  }

  key(event) {
    const moves = { ArrowLeft: [-80, 0], ArrowRight: [80, 0], ArrowUp: [0, -80], ArrowDown: [0, 80],
      PageUp: [0, -0.9 * this.canvas.clientHeight], PageDown: [0, 0.9 * this.canvas.clientHeight] };
    if (event.key in moves) this.move(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoom(1.4);
    else if (event.key === "-") this.zoom(1 / 1.4);
    else if (event.key === "0") this.fit();
    else if (event.key === "Home") this.home();
    else if (event.key === "n" || event.key === "p") this.step(event.key === "n" ? 1 : -1);
    else if (event.key === "Enter" || event.key === " ") this.toggle();
    else if (event.key === "[") this.foldAll(false);
    else if (event.key === "]") this.foldAll(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // The next box, or the one before.
  step(by) {
    if (!this.ready) return;
    const total = this.view.count + this.view.inputCount + this.view.outputCount;
    const vertex = this.chosen < 0 ? 0 : Math.max(0, Math.min(total - 1, this.chosen + by));
    this.take(vertex);
    this.center(vertex);
  }

  // Unfolds the chosen box, or folds the module that it is in.
  toggle() {
    const group = this.groupOf(this.chosen);
    if (group !== null) this.fold(group, !group.open);
  }

  move(dx, dy) {
    if (!this.ready) return;
    const { left, right, height: deep } = this.layout, width = this.canvas.clientWidth / this.scale;
    const height = this.canvas.clientHeight / this.scale;
    this.x = Math.max(left - width * 0.8, Math.min(right - width * 0.2, this.x + dx / this.scale));
    this.y = Math.max(-height * 0.8, Math.min(deep - height * 0.2, this.y + dy / this.scale));
    this.invalidate();
  }

  zoom(factor, atX = this.canvas.clientWidth / 2, atY = this.canvas.clientHeight / 2) {
    if (!this.ready) return;
    const scale = Math.max(LEAST, Math.min(3, this.scale * factor));
    this.x += atX / this.scale - atX / scale;
    this.y += atY / this.scale - atY / scale;
    this.scale = scale;
    this.invalidate();
  }

  // Moves a vertex to the middle, at once or as soon as the graph is in sight.
  center(vertex) {
    this.awaited = this.canvas.clientWidth ? -1 : vertex;
    if (this.awaited >= 0) return;
    if (this.homeless) this.home();
    if (this.scale < LEAST_CENTERED) this.scale = LEAST_CENTERED;
    this.x = this.layout.x[vertex] - this.canvas.clientWidth / 2 / this.scale;
    this.y = this.layout.top(vertex) - this.canvas.clientHeight / 2 / this.scale;
    this.invalidate();
  }

  // Choosing -----------------------------------------------------------------------------------------------------

  click(atX, atY) {
    const vertex = this.vertexAt(atX, atY), group = this.view?.groups[vertex];
    if (vertex < 0) {
      const framed = this.titleAt(atX, atY);
      if (framed === null) return;
      this.fold(framed, false);
      this.app.showModule(framed);
    } else if (group !== undefined) {
      this.fold(group, true);
      this.app.showModule(group);
    } else {
      this.take(vertex);
    }
  }

  choose(vertex) {
    this.chosen = vertex;
    this.canvas.setAttribute("aria-label", `The graph. ${this.textOf(vertex)}`);
    this.invalidate();
  }

  // Chooses a vertex for the whole page.
  take(vertex) {
    this.choose(vertex);
    const element = this.elementOf(vertex);
    if (element !== null) this.app.select(element, "graph");
    else if (this.view.groups[vertex] !== undefined) this.app.showModule(this.view.groups[vertex]);
    this.app.announce(this.textOf(vertex));
  }

  hover(event) {
    const vertex = this.vertexAt(event.offsetX, event.offsetY);
    const framed = vertex < 0 ? this.titleAt(event.offsetX, event.offsetY) : null;
    this.canvas.style.cursor = vertex < 0 && framed === null ? "grab" : "pointer";
    if (vertex < 0) {
      const line = framed === null ? this.lineAt(event.offsetX, event.offsetY) : null;
      if (framed !== null) this.app.tip(event, [`${framed.path}: ${many(framed.size, "node")}`, "a click folds it"]);
      else this.app.tip(line === null ? null : event, line === null ? [] : this.lineText(...line));
      return;
    }
    this.app.tip(event, this.tipOf(vertex));
    const element = this.elementOf(vertex);
    if (element !== null) this.app.strip?.hover(element);
  }

  // Shows an input or an output of the graph.
  showPort(name, isOutput) {
    const vertex = this.view.portOf(name, isOutput);
    if (vertex < 0) return;
    this.choose(vertex);
    this.center(vertex);
  }

  // Shows the node that an element is or belongs to; where it was clicked here nothing moves.
  selected(element, from) {
    let at = element;
    while (at !== null && at.message !== "NodeProto") at = at.parent;
    if (at === null || from === "graph" || !this.byStart.has(at.start)) return;
    this.open(this.byStart.get(at.start));
    const position = this.modules.positions[this.places.get(at.start)];
    if (this.modules.reveal(position)) this.folded(null);
    this.choose(this.view.vertexAt(position));
    this.center(this.chosen);
  }
}
