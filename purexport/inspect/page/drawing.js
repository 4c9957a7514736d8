// How a graph looks on a canvas: of the layout only what is in sight is drawn, and less of it when it is small.
// Boxes have the colour of what their operators do, or that of a `paint`: errors, or what differs.

const LEAST_TEXT = 0.34;  // the scale from which on boxes have text
const LEAST_SHAPE = 0.6;  // from which on edges have shapes
const SHAPE_WIDTH = 210;
const CUTS = [6, 3];  // letters that are left of the names of sizes where a shape has less room
const LEAST_EDGE = 0.03;  // from which on edges are drawn
const LEAST_CENTERED = 0.5;  // at which a box is brought to the middle
const LEAST_FRAME = 0.06;  // from which on modules have frames
const LEAST = 0.02;  // the least of all, at which a layer is a line; the bar shows more
const MOST_DIMS = 8;  // of a shape in a box
const MOST_TITLE = 30;  // letters of a module's name in a box
const MOST_WIDTH = 290;  // of a box
const TITLE_FONT = "600 13px system-ui, sans-serif", TEXT_FONT = "11px system-ui, sans-serif";
const STRIPE = 5;  // pixels of what a module consists of

const shapeText = (dims) => {
  const text = dims.slice(0, MOST_DIMS).join("\u00d7") || "scalar";
  return dims.length > MOST_DIMS ? `${text} ...` : text;
};
const endOf = (text, most) => (text.length > most ? `...${text.slice(3 - most)}` : text);

// A type as text, and shorter forms of it: without the data type, and with the names of sizes cut.
function shorterShapes(text) {
  const shape = text.replace(/^\w+(?=\[)/, ""), cut = (most) => shape.replace(/[A-Za-z_]\w*/g, (name) => (
    name.length > most + 1 ? `${name.slice(0, most)}\u2026` : name));
  return [text, shape, ...CUTS.map(cut)];
}

class Drawing {
  // The two lines of a box: what it is, and the shapes of its weights, or how much is in it.
  lines(vertex, kind) {
    const { graph, view } = this;
    if (kind === INPUT || kind === OUTPUT) {
      const names = view.namesOf(vertex);
      if (names.length === 1) return [names[0], ""];
      return [sharedName(names), many(names.length, kind === INPUT ? "input" : "output")];
    }
    const group = view.groups[vertex];
    if (group !== undefined) return [endOf(group.title, MOST_TITLE), many(group.size, "node")];
    const node = this.nodeOf(vertex);
    const weights = node.inputs.filter((name) => graph.weights.has(name));
    const shapes = weights.slice(0, 2).map((name) => shapeText(graph.weights.get(name).dims));
    const second = shapes.join("  ") + (weights.length > 2 ? " ..." : "");
    return [node.op + (node.graphs.length ? " \u25a3" : ""), second];
  }

  nodeOf(vertex) {
    return this.graph.nodes[this.modules.order[this.view.starts[vertex]]];
  }

  widthOf(vertex, kind) {
    const [first, second] = this.lines(vertex, kind), isGroup = this.view.groups[vertex] !== undefined;
    const width = Math.max(this.textWidth(first, TITLE_FONT), this.textWidth(second, TEXT_FONT)) + (isGroup ? 46 : 22);
    return Math.max(isGroup ? 104 : 64, Math.min(MOST_WIDTH, width));
  }

  // Kept, because boxes have few different texts.
  textWidth(text, font) {
    const context = this.canvas.getContext("2d"), key = `${font} ${text}`;
    if (!this.measured.has(key)) {
      context.font = font;
      this.measured.set(key, context.measureText(plain(text)).width);
    }
    return this.measured.get(key);
  }

  draw() {
    const context = this.canvas.getContext("2d"), ratio = devicePixelRatio, { layout, scale } = this;
    const colors = this.app.colors;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colors.paper;
    context.fillRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    context.setTransform(ratio * scale, 0, 0, ratio * scale, -this.x * scale * ratio, -this.y * scale * ratio);
    const view = { left: this.x, right: this.x + this.canvas.clientWidth / scale };
    const from = Math.max(0, layout.layerAt(this.y) - 1);
    const to = Math.min(layout.depth - 1, layout.layerAt(this.y + this.canvas.clientHeight / scale) + 1);
    this.framesInSight = layout.frames.filter((frame) => frame.last >= from && frame.first <= to
      && frame.right >= view.left && frame.left <= view.right);
    if (scale >= LEAST_FRAME) this.drawFrames(context, from, to, colors);
    if (scale >= LEAST_EDGE) this.drawEdges(context, from, to, view, colors);
    if (scale >= LEAST_TEXT) this.drawTitles(context, from, to, view, colors);
    for (let at = from; at <= to; at++) this.drawRow(context, at, view, colors);
    this.drawBar();
  }

  drawFrames(context, from, to, colors) {
    for (const frame of this.framesInSight) {
      context.beginPath();
      outlineOf(context, this.layout, frame, from - 1, to + 1);
      context.fillStyle = colors.frame;
      context.fill();
      context.strokeStyle = colors.line;
      context.lineWidth = Math.max(1, 0.7 / this.scale);
      context.stroke();
    }
  }

  // Over the lines, which may lead through frames.
  drawTitles(context, from, to, view, colors) {
    context.font = TEXT_FONT;
    context.textAlign = "left";
    for (const frame of this.framesInSight) {
      if (frame.first < from || frame.first > to) continue;
      const [left, right, top] = this.titleOf(frame);
      if (right < view.left || left > view.right) continue;
      const texts = [`\u25be ${endOf(frame.group.title, MOST_TITLE)}`, "\u25be"];
      writeOver(context, texts, left + 8, top + 15, right - left - 14, colors.frame, colors.faint);
    }
  }

  // Where the title of a frame is: the upper edge of its first layer.
  titleOf({ rows, first, up }) {
    return [...rows[0], this.layout.tops[first] - up * HEAD];
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
        if (layout.stubs.has(vertex)) this.drawStubs(context, vertex, colors);
      }
    }
    context.lineWidth = Math.max(1.2, 0.8 / this.scale);
    context.strokeStyle = colors.edge;
    context.stroke(others);
    context.lineWidth = Math.max(2.4, 1.2 / this.scale);
    context.strokeStyle = colors.accent;
    context.stroke(chosen);
  }

  // The vertex that a bend's edge comes from, else the vertex itself.
  sourceOf(vertex) {
    return this.layout.kind[vertex] === BEND ? this.layout.source[vertex] : vertex;
  }

  isChosen(vertex, below) {
    return this.chosen >= 0 && (this.sourceOf(vertex) === this.chosen || below === this.chosen);
  }

  // Where the line from a vertex to one of the next layer begins and ends: [x, y, x, y].
  ends(vertex, below) {
    const { layout } = this;
    const y = layout.top(vertex) + (layout.kind[vertex] === BEND ? BOX / 2 : BOX);
    const end = layout.top(below) + (layout.kind[below] === BEND ? BOX / 2 : 0);
    return [layout.x[vertex], y, layout.x[below], end];
  }

  edge(path, vertex, below) {
    const [x, y, other, end] = this.ends(vertex, below), middle = (y + end) / 2;
    path.moveTo(x, y);
    if (Math.abs(x - other) < 0.5) path.lineTo(other, end);
    else path.bezierCurveTo(x, middle, other, middle, other, end);
  }

  // Where an edge from far away comes in: a short line and the name of what it brings.
  drawStubs(context, vertex, colors) {
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
    const names = layout.stubs.get(vertex).map((from) => this.lines(from, layout.kind[from])[0]);
    context.fillStyle = colors.faint;
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "left";
    write(context, cutTo(context, `from ${names.slice(0, 2).join(", ")}`, layout.widths[vertex]), x + 4, y - 6);
  }

  // The colour behind a place below the boxes of a layer: that of a frame, or of the paper.
  groundAt(x, y, layer, colors) {
    const below = y - this.layout.tops[layer] - BOX;
    const isIn = ({ first, last, rows, down }) => {
      if (layer < first || layer > last || (layer === last && below > down * FOOT)) return false;
      const [left, right] = rows[layer - first];
      return x >= left && x < right;
    };
    return this.framesInSight.some(isIn) ? colors.frame : colors.paper;
  }

  drawRow(context, at, view, colors) {
    const { layout, scale } = this, row = layout.rows[at], [low, high] = this.sight(row, view);
    let lastPixel = -Infinity;
    for (let index = low; index < high; index++) {
      const vertex = row[index], width = layout.widths[vertex], x = layout.x[vertex] - width / 2;
      if (layout.kind[vertex] === BEND) continue;
      if (scale < LEAST_TEXT && (x + width) * scale - lastPixel < 1) continue;  // too small to be seen
      lastPixel = (x + width) * scale;
      this.drawBox(context, vertex, colors);
    }
    if (scale < LEAST_SHAPE) return;
    context.font = TEXT_FONT;
    context.textAlign = "left";
    for (let index = low; index < high; index++) {
      const text = this.shapeOf(row[index]), x = layout.x[row[index]] + 5;
      if (!text) continue;
      const next = row.slice(index + 1, high).find((one) => layout.kind[one] !== BEND);
      const room = Math.min(next === undefined ? SHAPE_WIDTH : layout.x[next] - x - 5, view.right - x - 5);
      const y = layout.top(row[index]) + BOX + 13;
      writeOver(context, shorterShapes(text), x, y, Math.min(SHAPE_WIDTH, room),
        this.groundAt(x, y, at, colors), colors.faint);
    }
  }

  drawBox(context, vertex, colors) {
    const { layout, scale } = this, kind = layout.kind[vertex], width = layout.widths[vertex];
    const x = layout.x[vertex] - width / 2, y = layout.top(vertex), group = this.view.groups[vertex];
    const painted = this.paintOf(vertex);
    context.fillStyle = painted ?? (group === undefined ? colors[this.familyOf(vertex)] : colors.module);
    if (scale < LEAST_TEXT) {
      context.fillRect(x, y, width, BOX);
      if (group !== undefined && painted === null) this.stripe(context, group, x, y, width, colors);
      this.outlines(context, vertex, colors);
      return;
    }
    context.beginPath();
    context.roundRect(x, y, width, BOX, kind === NODE ? 6 : BOX / 2);
    context.fill();
    if (group !== undefined) {
      context.strokeStyle = colors.faint;
      context.lineWidth = 1.2;
      context.stroke();
      context.save();
      context.clip();
      if (painted === null) this.stripe(context, group, x, y, width, colors);
      context.restore();
    }
    this.outlines(context, vertex, colors);
    this.mark(context, vertex, colors);
    const [first, second] = this.lines(vertex, kind);
    context.textAlign = "center";
    context.fillStyle = group === undefined || painted !== null ? colors.onColor : colors.ink;
    context.font = TITLE_FONT;
    const shift = group === undefined ? 0 : 8;
    const room = width - 10 - 2 * shift, isPort = kind !== NODE;
    write(context, cutTo(context, first, room, isPort), layout.x[vertex] + shift, y + (second ? 17 : 26));
    context.font = TEXT_FONT;
    if (second) write(context, cutTo(context, second, room), layout.x[vertex] + shift, y + 32);
    if (group === undefined) return;
    context.textAlign = "left";
    context.font = "15px system-ui, sans-serif";
    write(context, "\u25b8", x + 7, y + 18);
  }

  // What a module consists of, by families, along the bottom of its box.
  stripe(context, group, x, y, width, colors) {
    if (group.families === undefined) group.families = familiesOf(this.modules.nodesIn(group));
    let at = x;
    for (const [family, number] of group.families) {
      const part = width * number / group.size;
      context.fillStyle = colors[family];
      context.fillRect(at, y + BOX - STRIPE, part, STRIPE);
      at += part;
    }
  }

  familyOf(vertex) {
    const { layout, view } = this;
    if (layout.kind[vertex] !== NODE) return "outside";
    const group = view.groups[vertex];
    if (group === undefined) return familyOf(this.nodeOf(vertex).op);
    if (group.families === undefined) group.families = familiesOf(this.modules.nodesIn(group));
    return group.families[0][0];
  }

  // The colour that a paint gives a box; null where there is no paint.
  paintOf(vertex) {
    if (this.paint === null) return null;
    return this.layout.kind[vertex] === NODE ? this.paint.colorOf(this.rankOf(vertex)) : this.app.colors.outside;
  }

  // The rank that a paint gives a box: that of its most important node.
  rankOf(vertex) {
    const { paint } = this;
    if (!this.painted.has(vertex)) {
      let most = -Infinity;
      for (const node of this.view.nodesOf(vertex)) most = Math.max(most, paint.rankOf(node));
      this.painted.set(vertex, most);
    }
    return this.painted.get(vertex);
  }

  outlines(context, vertex, colors) {
    const { layout, paint } = this, width = layout.widths[vertex];
    const edge = paint === null || layout.kind[vertex] !== NODE ? null : paint.edgeOf(this.rankOf(vertex));
    if (edge !== null) this.outline(context, vertex, width - 4, edge, 2);
    if (this.holdsFound(vertex)) this.outline(context, vertex, width, colors.found, 2);
    if (vertex === this.chosen) this.outline(context, vertex, width, colors.accent, 3);
  }

  outline(context, vertex, width, color, line) {
    const { layout } = this;
    context.strokeStyle = color;
    context.lineWidth = Math.max(line, line / this.scale);
    context.beginPath();
    context.roundRect(layout.x[vertex] - width / 2 - 3, layout.top(vertex) - 3, width + 6, BOX + 6, 8);
    context.stroke();
  }

  // A word of the paint above a box.
  mark(context, vertex, colors) {
    const text = this.paint === null ? "" : this.markOf(vertex);
    if (!text) return;
    const { layout } = this, x = layout.x[vertex] + layout.widths[vertex] / 2 + 8, y = layout.top(vertex) + BOX / 2;
    context.font = "600 11px system-ui, sans-serif";
    context.textAlign = "left";
    const width = 7 * text.length + 10;
    context.fillStyle = colors.bad;
    context.beginPath();
    context.roundRect(x, y - 9, width, 18, 9);
    context.fill();
    context.fillStyle = colors.onBad;
    write(context, text, x + 7, y + 4);
  }

  markOf(vertex) {
    if (!this.marks.has(vertex)) {
      this.marks.set(vertex, this.view.nodesOf(vertex).map((node) => this.paint.markOf(node)).find(Boolean) ?? "");
    }
    return this.marks.get(vertex);
  }

  // The type of what a vertex gives, to stand beside the line that leads on from it.
  shapeOf(vertex) {
    const { layout, shapes } = this, kind = layout.kind[vertex];
    if (kind !== NODE && kind !== INPUT) return "";
    if (!shapes.has(vertex)) shapes.set(vertex, this.shapeText(vertex));
    return shapes.get(vertex);
  }

  shapeText(vertex) {
    const texts = new Set();
    for (const name of this.given(vertex)) texts.add(this.typeOf(name));
    texts.delete("");
    if (!texts.size) return "";
    const [first] = texts;
    return texts.size > 1 ? `${first} and ${texts.size - 1} more` : first;
  }

  // The values that a vertex gives to others; the first result where no one takes any.
  given(vertex) {
    const { layout, view } = this, found = new Set();
    if (layout.kind[vertex] === INPUT) return view.namesOf(vertex);
    for (const to of view.succs[vertex]) for (const name of view.carried(vertex, to)) found.add(name);
    if (!found.size && view.groups[vertex] === undefined) return this.nodeOf(vertex).outputs.slice(0, 1);
    return [...found];
  }

  typeOf(name) {
    const info = this.graph.values.get(name);
    return info === undefined ? "" : valueType(this.app.bytes, info);
  }

  worstOf(row) {
    const nodes = row.filter((vertex) => this.layout.kind[vertex] === NODE);
    return nodes.reduce((worst, vertex) => (this.rankOf(vertex) > this.rankOf(worst) ? vertex : worst));
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
        let vertex = row.find((one) => layout.kind[one] === NODE);
        if (vertex === undefined) continue;
        if (this.paint !== null) vertex = this.worstOf(row);
        context.fillStyle = this.paintOf(vertex) ?? this.app.colors[this.familyOf(vertex)];
        context.fillRect(3, at * height / shown, width - 6, Math.max(1, Math.min(line * 0.8, 12)));
      }
      this.barImage = context.getImageData(0, 0, width, height);
    }
    context.putImageData(this.barImage, 0, 0);
    const top = this.y / layout.height * height, size = this.canvas.clientHeight / this.scale / layout.height * height;
    context.strokeStyle = this.app.colors.accent;
    context.lineWidth = 2;
    context.strokeRect(1, Math.max(1, top), width - 2, Math.max(4, Math.min(size, height - Math.max(0, top) - 2)));
  }
}
