// The graph as a drawing on a canvas: of the layout only what is in sight is drawn, and less of it when it is small.
// Wheel and drag move, Ctrl and wheel zoom, a click selects; the bar on the right is the whole graph.

// operators by what they do, each with the name of its colour; what is in none is elementwise
const FAMILIES = {
  weights: "Conv ConvTranspose ConvInteger DeformConv Gemm MatMul MatMulInteger QLinearConv QLinearMatMul Einsum "
    + "LSTM GRU RNN Attention",
  norm: "BatchNormalization LayerNormalization GroupNormalization InstanceNormalization RMSNormalization "
    + "LpNormalization MeanVarianceNormalization LRN Dropout",
  activation: "Relu LeakyRelu PRelu ThresholdedRelu Sigmoid HardSigmoid HardSwish Tanh Elu Celu Selu Gelu Softmax "
    + "LogSoftmax Hardmax Softplus Softsign Mish Swish Erf Clip Shrink",
  reduce: "AveragePool MaxPool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool ArgMax ArgMin TopK CumSum Resize "
    + "Upsample ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    + "ReduceSumSquare MaxRoiPool RoiAlign NonMaxSuppression",
  control: "If Loop Scan SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
    + "SequenceMap SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement",
  shape: "Reshape Transpose Concat Split Slice Gather GatherElements GatherND Scatter ScatterElements ScatterND "
    + "Squeeze Unsqueeze Flatten Expand Pad Tile Shape Size Identity Cast CastLike Constant ConstantOfShape Range "
    + "DepthToSpace SpaceToDepth Where QuantizeLinear DequantizeLinear DynamicQuantizeLinear Trilu OneHot NonZero",
};
const FAMILY_OF = new Map(Object.entries(FAMILIES).flatMap(([name, ops]) => ops.split(" ").map((op) => [op, name])));
const LEAST_TEXT = 0.34;  // the scale from which on boxes have text
const LEAST_SHAPE = 0.6;  // from which on edges have shapes
const SHAPE_WIDTH = 190;
const LEAST_EDGE = 0.03;  // from which on edges are drawn
const LEAST = 0.02;  // the least of all, at which a layer is a line; the bar shows more

const MOST_DIMS = 8;  // of a shape in a box

const shapeText = (dims) => {
  const text = dims.slice(0, MOST_DIMS).join("\u00d7") || "scalar";
  return dims.length > MOST_DIMS ? `${text} ...` : text;
};
const familyOf = (op) => FAMILY_OF.get(op) ?? "element";

class GraphView {
  constructor(app) {
    this.app = app;
    this.box = $("graph");
    this.canvas = $("graph-canvas");
    this.bar = $("graph-bar");
    this.graph = null;
    this.layout = null;
    this.scale = 1;
    this.x = this.y = 0;  // the world's point at the upper left
    this.chosen = -1;
    this.waiting = false;
    this.frames = [];
    this.byElement = new Map();
    this.listen();
    app.onSelect((element, from) => this.selected(element, from));
    app.onTheme(() => this.invalidate());
    this.fillPicker();
    new ResizeObserver(() => this.resize()).observe(this.box);
  }

  get ready() {
    return this.layout !== null && this.box.clientWidth > 0;
  }

  fillPicker() {
    const { graphs } = this.app.model, picker = $("graph-picker");
    graphs.forEach((graph, at) => {
      const option = make("option", "", `${graph.title} (${many(graph.nodes.length, "node")})`);
      option.value = String(at);
      picker.append(option);
    });
    picker.hidden = graphs.length < 2;
    picker.addEventListener("change", () => this.open(graphs[Number(picker.value)]));
    for (const graph of graphs) {
      for (const node of graph.nodes) this.byElement.set(node.element, graph);
    }
    if (graphs.length) this.open(graphs[0]);
    else $("graph-empty").hidden = false;
  }

  open(graph) {
    if (graph === this.graph) return;
    this.graph = graph;
    const start = performance.now();
    if (graph.layout === null) graph.layout = new Layout(graph, (vertex, kind) => this.widthOf(graph, vertex, kind));
    this.app.timings.layout = Math.round(performance.now() - start);
    this.layout = graph.layout;
    this.chosen = -1;
    this.places = new Map(graph.nodes.map((node, at) => [node.element, at]));
    $("graph-picker").value = String(this.app.model.graphs.indexOf(graph));
    $("graph-empty").hidden = graph.nodes.length > 0;
    this.barImage = null;
    this.shapes = new Map();
    this.home();
  }

  // The two lines of a box: what it is, and the shapes of its weights, or where its name ends.
  lines(graph, vertex, kind) {
    if (kind === INPUT) return [graph.inputs[vertex - graph.nodes.length], ""];
    if (kind === OUTPUT) return [graph.outputs[vertex - graph.nodes.length - graph.inputs.length], ""];
    const node = graph.nodes[vertex];
    const weights = node.inputs.filter((name) => graph.weights.has(name));
    const shapes = weights.slice(0, 2).map((name) => shapeText(graph.weights.get(name).dims));
    const second = shapes.join("  ") + (weights.length > 2 ? " ..." : "");
    return [node.op + (node.graphs.length ? " \u25a3" : ""), second];
  }

  widthOf(graph, vertex, kind) {
    const [first, second] = this.lines(graph, vertex, kind);
    return Math.max(64, Math.min(230, Math.max(first.length * 7.8, second.length * 6.2) + 22));
  }

  // To the first layer, at a scale at which it can be read.
  home() {
    this.homeless = !this.canvas.clientWidth;  // not in sight yet
    if (this.homeless) return;
    const { left, right, depth } = this.layout, width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    const whole = Math.min(width / (right - left + 80), height / (depth * ROW + 90));
    this.scale = Math.max(Math.min(1, whole), Math.min(0.8, width / 900));
    const first = this.layout.rows.length ? this.layout.x[this.layout.rows[0][0]] : 0;
    const middle = (right - left + 80) * this.scale < width ? (left + right) / 2 : first;
    this.x = middle - width / 2 / this.scale;
    this.y = -52 / this.scale;
    this.invalidate();
  }

  // All of it, as far as it can be seen.
  fit() {
    const { left, right, depth } = this.layout, width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    this.scale = Math.max(LEAST, Math.min(1, width / (right - left + 80), height / (depth * ROW + 60)));
    this.x = (left + right) / 2 - width / 2 / this.scale;
    this.y = Math.min(-30 / this.scale, (depth * ROW - (ROW - BOX)) / 2 - height / 2 / this.scale);
    this.invalidate();
  }

  resize() {
    for (const canvas of [this.canvas, this.bar]) {
      canvas.width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
      canvas.height = Math.max(1, Math.round(canvas.clientHeight * devicePixelRatio));
    }
    this.barImage = null;
    if (this.homeless && this.canvas.clientWidth) this.home();
    else this.invalidate();
  }

  invalidate() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (!this.ready) return;
      const start = performance.now();
      this.draw();
      this.frames.push(performance.now() - start);
      if (this.frames.length > 600) this.frames.splice(0, 300);
    });
  }

  // Drawing ------------------------------------------------------------------------------------------------------

  draw() {
    const context = this.canvas.getContext("2d"), ratio = devicePixelRatio, { layout, scale } = this;
    const colors = this.app.colors;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colors.paper;
    context.fillRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    context.setTransform(ratio * scale, 0, 0, ratio * scale, -this.x * scale * ratio, -this.y * scale * ratio);
    const view = { left: this.x, right: this.x + this.canvas.clientWidth / scale };
    const from = Math.max(0, Math.floor(this.y / ROW) - 1);
    const to = Math.min(layout.depth - 1, Math.ceil((this.y + this.canvas.clientHeight / scale) / ROW));
    if (scale >= LEAST_EDGE) this.drawEdges(context, from, to, view, colors);
    for (let at = from; at <= to; at++) this.drawRow(context, layout.rows[at], view, colors);
    this.drawBar();
  }

  // The vertices of a row that are in sight: from one index to another.
  sight(row, view) {
    const { x } = this.layout, edge = 140;
    let low = 0, high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[row[middle]] < view.left - edge) low = middle + 1;
      else high = middle;
    }
    let stop = low;
    while (stop < row.length && x[row[stop]] <= view.right + edge) stop++;
    return [low, stop];
  }

  drawEdges(context, from, to, view, colors) {
    const { layout } = this, chosen = new Path2D(), others = new Path2D();
    for (let at = from; at <= to; at++) {
      const row = layout.rows[at], [low, high] = row.length > 2000 ? this.sight(row, view) : [0, row.length];
      for (let index = low; index < high; index++) {
        const vertex = row[index];
        for (const below of layout.downs[vertex]) {
          const x = layout.x[vertex], other = layout.x[below];
          if (Math.max(x, other) < view.left || Math.min(x, other) > view.right) continue;
          this.edge(this.isChosen(vertex, below) ? chosen : others, vertex, below);
        }
        if (layout.stubs.has(vertex)) this.stubs(context, vertex, colors);
      }
    }
    context.lineWidth = Math.max(1.2, 0.8 / this.scale);
    context.strokeStyle = colors.edge;
    context.stroke(others);
    context.lineWidth = Math.max(2.4, 1.2 / this.scale);
    context.strokeStyle = colors.accent;
    context.stroke(chosen);
  }

  isChosen(vertex, below) {
    if (this.chosen < 0) return false;
    const { layout } = this, source = layout.kind[vertex] === BEND ? layout.source[vertex] : vertex;
    return source === this.chosen || below === this.chosen;
  }

  edge(path, vertex, below) {
    const { layout } = this, x = layout.x[vertex], other = layout.x[below];
    const y = layout.top(vertex) + (layout.kind[vertex] === BEND ? BOX / 2 : BOX);
    const end = layout.top(below) + (layout.kind[below] === BEND ? BOX / 2 : 0);
    const middle = (y + end) / 2;
    path.moveTo(x, y);
    if (Math.abs(x - other) < 0.5) path.lineTo(other, end);
    else path.bezierCurveTo(x, middle, other, middle, other, end);
  }

  // Where an edge from far away comes in: a short line and the name of what it brings.
  stubs(context, vertex, colors) {
    const { layout } = this, x = layout.x[vertex] - layout.widths[vertex] / 2 + 10, y = layout.top(vertex);
    context.strokeStyle = colors.edge;
    context.lineWidth = 1.2;
    context.setLineDash([3, 2]);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x, y - 14);
    context.stroke();
    context.setLineDash([]);
    if (this.scale < LEAST_TEXT) return;
    const names = layout.stubs.get(vertex).map((from) => this.lines(this.graph, from, layout.kind[from])[0]);
    context.fillStyle = colors.faint;
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "left";
    write(context, `from ${names.slice(0, 2).join(", ")}`, x + 4, y - 6, layout.widths[vertex]);
  }

  drawRow(context, row, view, colors) {
    const { layout, scale } = this, [low, high] = this.sight(row, view);
    let lastPixel = -Infinity;
    for (let index = low; index < high; index++) {
      const vertex = row[index], kind = layout.kind[vertex], width = layout.widths[vertex];
      if (kind === BEND) continue;
      const x = layout.x[vertex] - width / 2, y = layout.top(vertex);
      if (scale < LEAST_TEXT && (x + width) * scale - lastPixel < 1) continue;  // too small to be seen
      lastPixel = (x + width) * scale;
      const family = kind === NODE ? familyOf(this.graph.nodes[vertex].op) : "outside";
      context.fillStyle = colors[family];
      if (scale < LEAST_TEXT) {
        context.fillRect(x, y, width, BOX);
        if (vertex === this.chosen) this.outline(context, vertex, colors);
        continue;
      }
      context.beginPath();
      context.roundRect(x, y, width, BOX, kind === NODE ? 6 : BOX / 2);
      context.fill();
      if (vertex === this.chosen) this.outline(context, vertex, colors);
      const [first, second] = this.lines(this.graph, vertex, kind);
      context.textAlign = "center";
      context.fillStyle = colors.onColor;
      context.font = "600 13px system-ui, sans-serif";
      write(context, first, layout.x[vertex], y + (second ? 17 : 26), width - 10);
      if (!second) continue;
      context.font = "11px system-ui, sans-serif";
      write(context, second, layout.x[vertex], y + 33, width - 10);
    }
    if (scale < LEAST_SHAPE) return;
    context.fillStyle = colors.faint;
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "left";
    for (let index = low; index < high; index++) {
      const text = this.shapeOf(row[index]);
      if (text) write(context, text, layout.x[row[index]] + 5, layout.top(row[index]) + BOX + 12, SHAPE_WIDTH);
    }
  }

  // The type of what a vertex gives, to stand beside the line that leads on from it.
  shapeOf(vertex) {
    const { graph, layout, shapes } = this, kind = layout.kind[vertex];
    if (kind !== NODE && kind !== INPUT) return "";
    if (!shapes.has(vertex)) {
      const name = kind === NODE ? graph.nodes[vertex].outputs[0] : graph.inputs[vertex - graph.nodes.length];
      const info = graph.values.get(name);
      shapes.set(vertex, info === undefined ? "" : valueType(this.app.bytes, info));
    }
    return shapes.get(vertex);
  }

  outline(context, vertex, colors) {
    const { layout } = this, width = layout.widths[vertex];
    context.strokeStyle = colors.accent;
    context.lineWidth = Math.max(3, 3 / this.scale);
    context.strokeRect(layout.x[vertex] - width / 2 - 3, layout.top(vertex) - 3, width + 6, BOX + 6);
  }

  // The whole graph as one bar: the colour of a layer's first node a line, and what is in sight.
  drawBar() {
    const { layout } = this, { width, height } = this.bar;
    const context = this.bar.getContext("2d", { willReadFrequently: true });
    if (this.barImage === null || this.barTheme !== this.app.colors) {
      this.barTheme = this.app.colors;
      context.fillStyle = this.app.colors.panel;
      context.fillRect(0, 0, width, height);
      const line = height / layout.depth;
      const shown = Math.min(layout.depth, height);
      for (let at = 0; at < shown; at++) {
        const row = layout.rows[Math.floor(at * layout.depth / shown)];
        const vertex = row.find((one) => layout.kind[one] === NODE);
        if (vertex === undefined) continue;
        context.fillStyle = this.app.colors[familyOf(this.graph.nodes[vertex].op)];
        context.fillRect(3, at * height / shown, width - 6, Math.max(1, Math.min(line * 0.8, 12)));
      }
      this.barImage = context.getImageData(0, 0, width, height);
    }
    context.putImageData(this.barImage, 0, 0);
    const whole = layout.depth * ROW;
    const top = this.y / whole * height, size = this.canvas.clientHeight / this.scale / whole * height;
    context.strokeStyle = this.app.colors.accent;
    context.lineWidth = 2;
    context.strokeRect(1, Math.max(1, top), width - 2, Math.max(4, Math.min(size, height - Math.max(0, top) - 2)));
  }

  // Moving -------------------------------------------------------------------------------------------------------

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
      if (held !== null && !held.moved) this.click(this.vertexAt(event.offsetX, event.offsetY));
      held = null;
    });
    canvas.addEventListener("pointerleave", () => this.app.tip(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
    const seek = (event) => {
      if (!event.buttons || !this.ready) return;
      const place = event.offsetY / bar.clientHeight * this.layout.depth * ROW;
      this.y = place - canvas.clientHeight / 2 / this.scale;
      const row = this.layout.rows[Math.max(0, Math.min(this.layout.depth - 1, Math.floor(place / ROW)))];
      this.intoSight(row);
      this.invalidate();
    };
    bar.addEventListener("pointerdown", (event) => {
      bar.setPointerCapture(event.pointerId);
      seek(event);
    });
    bar.addEventListener("pointermove", seek);
    $("graph-in").addEventListener("click", () => this.zoom(1.4));
    $("graph-out").addEventListener("click", () => this.zoom(1 / 1.4));
    $("graph-fit").addEventListener("click", () => this.fit());
    $("graph-home").addEventListener("click", () => this.home());
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
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  move(dx, dy) {
    if (!this.ready) return;
    const { left, right, depth } = this.layout, width = this.canvas.clientWidth / this.scale;
    const height = this.canvas.clientHeight / this.scale;
    this.x = Math.max(left - width * 0.8, Math.min(right - width * 0.2, this.x + dx / this.scale));
    this.y = Math.max(-height * 0.8, Math.min(depth * ROW - height * 0.2, this.y + dy / this.scale));
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

  vertexAt(atX, atY) {
    if (!this.ready) return -1;
    const { layout } = this, x = this.x + atX / this.scale, y = this.y + atY / this.scale, at = Math.floor(y / ROW);
    if (at < 0 || at >= layout.depth || y - at * ROW > BOX) return -1;
    const found = layout.rows[at].find((vertex) => layout.kind[vertex] !== BEND
      && Math.abs(layout.x[vertex] - x) <= layout.widths[vertex] / 2);
    return found ?? -1;
  }

  // The element of a vertex: the node, or what the graph says of its input or output.
  elementOf(vertex) {
    const { graph, layout } = this;
    if (layout.kind[vertex] === NODE) return graph.nodes[vertex].element;
    return graph.values.get(this.lines(graph, vertex, layout.kind[vertex])[0]) ?? null;
  }

  click(vertex) {
    if (vertex < 0) return;
    this.chosen = vertex;
    const element = this.elementOf(vertex);
    if (element !== null) this.app.select(element, "graph");
    this.invalidate();
  }

  hover(event) {
    const vertex = this.vertexAt(event.offsetX, event.offsetY);
    this.canvas.style.cursor = vertex < 0 ? "grab" : "pointer";
    if (vertex < 0) {
      this.app.tip(null);
      return;
    }
    const { graph, layout } = this, kind = layout.kind[vertex];
    const node = kind === NODE ? graph.nodes[vertex] : null;
    const name = node === null ? this.lines(graph, vertex, kind)[0] : node.name;
    const values = node === null ? [name] : node.outputs;
    const types = values.filter((value) => graph.values.has(value))
      .map((value) => `${value}: ${valueType(this.app.bytes, graph.values.get(value))}`);
    this.app.tip(event, [node === null ? "" : `${node.domain ? `${node.domain}::` : ""}${node.op}`, name, ...types]);
    const element = this.elementOf(vertex);
    if (element !== null) this.app.strip.hover(element);
  }

  // Shows the node that an element is or belongs to; where it was clicked here nothing moves.
  selected(element, from) {
    let at = element;
    while (at !== null && at.message !== "NodeProto") at = at.parent;
    if (at === null || from === "graph" || !this.byElement.has(at)) return;
    this.open(this.byElement.get(at));
    this.chosen = this.places.get(at);
    if (this.scale < LEAST_TEXT) this.scale = LEAST_TEXT;
    this.x = this.layout.x[this.chosen] - this.canvas.clientWidth / 2 / this.scale;
    this.y = this.layout.top(this.chosen) - this.canvas.clientHeight / 2 / this.scale;
    this.invalidate();
  }
}
