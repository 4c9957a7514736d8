// The bytes: a strip of the whole file, which zooms, and the bytes themselves, 16 a row, where the page has them.

const A_ROW = 16;
const REGIONS = { element: "nodes", weights: "weights", reduce: "types of values", shape: "anything else",
  bad: "unreadable" };

class Strip {
  constructor(app) {
    this.app = app;
    this.canvas = $("strip");
    this.low = 0;
    this.high = app.facts.size || 1;
    this.marked = this.hovered = null;
    this.waiting = false;
    this.regions();
    this.legend();
    this.listen();
    app.onSelect((element) => {
      this.marked = element;
      this.keepInSight(element);
      this.invalidate();
    });
    app.onTheme(() => this.invalidate());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  // What the bytes are from each start on: fields of the model and of graphs, weights apart.
  regions() {
    const { bytes } = this.app;
    this.starts = [];
    this.kinds = [];
    const put = (start, kind) => {
      if (this.kinds[this.kinds.length - 1] === kind) return;
      this.starts.push(start);
      this.kinds.push(kind);
    };
    const take = (parent) => {
      for (const kid of bytes.kids(parent)) {
        if (kid.message === "GraphProto" || kid.message === "FunctionProto") take(kid);
        else if (kid.problem || kid.wire < 0) put(kid.start, "bad");
        else if (kid.message === "TensorProto") put(kid.start, "weights");
        else if (kid.message === "NodeProto") put(kid.start, "element");
        else if (kid.message === "ValueInfoProto") put(kid.start, "reduce");
        else put(kid.start, "shape");
      }
    };
    take(bytes.root);
  }

  // What the colours are, of those that the file has.
  legend() {
    const has = new Set(this.kinds);
    for (const [kind, name] of Object.entries(REGIONS)) {
      if (!has.has(kind)) continue;
      const row = make("span");
      row.append(make("span", `swatch ${kind}`), name);
      $("strip-legend").append(row);
    }
  }

  listen() {
    const { canvas } = this;
    let held = null;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        this.shift((event.deltaX + event.deltaY) / canvas.clientWidth);
      } else {
        this.zoom(Math.exp(event.deltaY / 250), this.offsetAt(event.offsetX));
      }
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.offsetX, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (held !== null && (held.moved || Math.abs(event.offsetX - held.x) > 4)) {
        this.shift((held.x - event.offsetX) / canvas.clientWidth);
        held = { x: event.offsetX, moved: true };
        return;
      }
      this.point(event);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (held !== null && !held.moved) {
        const chain = this.app.bytes.chainAt(Math.floor(this.offsetAt(event.offsetX)));
        if (chain.length) this.app.select(chain[chain.length - 1]);
      }
      held = null;
    });
    canvas.addEventListener("pointerleave", () => this.app.tip(null));
    canvas.addEventListener("dblclick", () => this.whole());
    $("strip-whole").addEventListener("click", () => this.whole());
    $("strip-chosen").addEventListener("click", () => this.zoomTo(this.marked));
  }

  offsetAt(x) {
    return this.low + (this.high - this.low) * Math.max(0, Math.min(1, x / this.canvas.clientWidth));
  }

  point(event) {
    const offset = Math.floor(this.offsetAt(event.offsetX)), chain = this.app.bytes.chainAt(offset);
    if (!chain.length) return;
    const inner = chain[chain.length - 1];
    const lines = [`${offsetText(offset)}  ${inner.path}`, textOf(this.app.bytes, inner), this.value(inner, offset)];
    this.app.tip(event, lines);
    this.hover(inner);
  }

  // Which value of a tensor a byte of its raw data belongs to.
  value(element, offset) {
    if (element.owner !== "TensorProto" || element.step !== "raw_data" || offset < element.body) return "";
    const [code, dims] = typeAndDims(this.app.bytes, element.parent), bits = this.app.bytes.dtypes[code]?.[1] ?? 0;
    if (!bits) return "";
    const index = Math.floor((offset - element.body) * 8 / bits);
    return `value ${count(index)} of ${dtypeName(this.app.bytes, code)}[${dims.join(", ")}]`;
  }

  // Marks where a field lies and says so below.
  hover(element) {
    this.hovered = element;
    this.app.status(`${offsetText(element.start)} to ${offsetText(element.stop)}   ${element.path}`);
    this.invalidate();
  }

  whole() {
    this.range(0, this.app.facts.size);
  }

  zoomTo(element) {
    if (element === null) return;
    const about = Math.max(16, (element.stop - element.start) / 4);
    this.range(element.start - about, element.stop + about);
  }

  zoom(factor, about) {
    this.range(about - (about - this.low) * factor, about + (this.high - about) * factor);
  }

  shift(share) {
    const by = Math.max(-this.low, Math.min(this.app.facts.size - this.high, share * (this.high - this.low)));
    this.range(this.low + by, this.high + by);
  }

  range(low, high) {
    const { size } = this.app.facts;
    this.low = Math.max(0, Math.min(low, size - 32));
    this.high = Math.min(Math.max(size, 1), Math.max(high, this.low + 32));
    this.invalidate();
  }

  keepInSight(element) {
    if (element.stop > this.low && element.start < this.high) return;
    const half = (this.high - this.low) / 2, middle = (element.start + element.stop) / 2;
    this.range(middle - half, middle + half);
  }

  invalidate() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    const { canvas } = this, { colors, facts } = this.app, width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width) return;
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
    const context = canvas.getContext("2d"), step = (this.high - this.low) / width, top = 8;
    context.scale(devicePixelRatio, devicePixelRatio);
    context.fillStyle = colors.panel;
    context.fillRect(0, 0, width, height);
    for (let x = 0; x < width; x++) {
      const index = lastNotAbove(this.starts, this.low + (x + 0.5) * step);
      if (index < 0) continue;
      context.fillStyle = colors[this.kinds[index]];
      context.fillRect(x, top, 1, height - top - 6);
    }
    const size = facts.size || 1;
    context.fillStyle = colors.line;
    context.fillRect(0, 1, width, 4);
    context.fillStyle = colors.accent;
    context.fillRect(this.low / size * width, 1, Math.max(3, (this.high - this.low) / size * width), 4);
    if (this.hovered !== null) this.mark(context, this.hovered, colors.ink, step, 1);
    if (this.marked !== null) this.mark(context, this.marked, colors.accent, step, 2);
    if (facts.damage !== null) {
      context.fillStyle = colors.bad;
      context.fillRect((facts.damage.at - this.low) / step - 1, 0, 3, height);
    }
  }

  mark(context, element, color, step, line) {
    const height = this.canvas.clientHeight;
    const left = (element.start - this.low) / step, right = (element.stop - this.low) / step;
    context.strokeStyle = context.fillStyle = color;
    context.lineWidth = line;
    context.strokeRect(left, 7.5, Math.max(2, right - left), height - 13);
    context.beginPath();
    const middle = Math.max(left, Math.min((left + right) / 2, this.canvas.clientWidth));
    context.moveTo(middle, height - 5);
    context.lineTo(middle - 4, height);
    context.lineTo(middle + 4, height);
    context.fill();
  }
}

class Hex {
  constructor(app) {
    this.app = app;
    this.chosen = null;
    const { starts, stops } = app.bytes.store;
    this.first = [];  // the number of the first row of each range; a row that says what is missing follows it
    let rows = 0;
    starts.forEach((start, at) => {
      this.first.push(rows);
      rows += Math.ceil(stops[at] / A_ROW) - Math.floor(start / A_ROW) + 1;
    });
    this.total = Math.max(0, rows - 1);
    this.list = new List($("hex-list"), 20, () => this.total, (row, index) => this.fill(row, index));
    app.onSelect((element) => this.selected(element));
    $("hex-list").addEventListener("click", (event) => {
      const at = event.target.dataset.at;
      if (at === undefined) return;
      const chain = app.bytes.chainAt(Number(at));
      if (chain.length) app.select(chain[chain.length - 1]);
    });
    $("hex-list").addEventListener("mouseover", (event) => {
      const at = event.target.dataset.at;
      const chain = at === undefined ? [] : app.bytes.chainAt(Number(at));
      if (chain.length) app.strip.hover(chain[chain.length - 1]);
    });
  }

  rowOf(offset) {
    const { starts, stops } = this.app.bytes.store, range = Math.max(0, lastNotAbove(starts, offset));
    const within = Math.min(offset, stops[range]);
    return this.first[range] + Math.floor(within / A_ROW) - Math.floor(starts[range] / A_ROW);
  }

  fill(row, index) {
    const { store } = this.app.bytes, range = lastNotAbove(this.first, index), start = store.starts[range];
    const at = (Math.floor(start / A_ROW) + index - this.first[range]) * A_ROW, stop = store.stops[range];
    if (at >= stop) {
      const next = store.starts[range + 1], chain = this.app.bytes.chainAt(stop);
      const missing = `${count(next - stop)} bytes of ${chain.length ? chain[chain.length - 1].path : "it"}`;
      row.append(make("span", "offset", offsetText(stop)), make("span", "missing", `${missing} are not in this page`));
      return;
    }
    row.append(make("span", "offset", at.toString(16).padStart(8, "0")));
    const octets = make("span", "octets"), letters = make("span", "letters");
    for (let offset = at; offset < at + A_ROW; offset++) {
      const byte = offset >= start && offset < stop ? store.at(offset) : MISSING;
      const here = make("span", this.classOf(offset), byte === MISSING ? "  " : hexByte(byte));
      const letter = make("span", this.classOf(offset), byte === MISSING ? " "
        : byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "\u00b7");
      here.dataset.at = letter.dataset.at = String(offset);
      octets.append(here);
      letters.append(letter);
    }
    row.append(octets, letters);
  }

  classOf(offset) {
    const { chosen } = this, { damage } = this.app.facts;
    if (damage !== null && offset === damage.at) return "bad";
    if (chosen === null || offset < chosen.start || offset >= chosen.stop) return "";
    return offset < chosen.body ? "head" : "value";
  }

  selected(element) {
    this.chosen = element;
    this.list.refresh();
    if (this.total) this.list.show(this.rowOf(element.start));
  }
}
