// Where the bytes are: a treemap of the weights by module, operator or type, and of the file by its fields.
// Rectangles are as near to squares as a row by row filling makes them; what is too small to see is not divided.

const LEAST_SIDE = 14;  // pixels of a group's shorter side below which it is not divided
const TITLE = 18;

class Part {
  constructor(name, parent) {
    this.name = name;
    this.parent = parent;
    this.size = 0;
    this.parts = new Map();
    this.element = null;
  }

  // The part at the end of a path of names; every part on the way grows.
  add(names, size, element) {
    let at = this;
    at.size += size;
    for (const name of names) {
      if (!at.parts.has(name)) at.parts.set(name, new Part(name, at));
      at = at.parts.get(name);
      at.size += size;
    }
    at.element = element;
  }

  // A chain of parts with nothing beside them is one part.
  get joined() {
    let at = this, name = this.name;
    while (at.parts.size === 1) {
      [at] = at.parts.values();
      name = `${name}.${at.name}`;
    }
    return [at, name];
  }
}

class Sizes {
  constructor(app) {
    this.app = app;
    this.box = $("sizes");
    this.canvas = $("sizes-canvas");
    this.rectangles = [];
    this.roots = new Map();
    $("sizes-by").addEventListener("change", () => this.show(null));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => app.tip(null));
    this.canvas.addEventListener("click", (event) => this.click(event));
    app.onTheme(() => this.draw());
    new ResizeObserver(() => this.show(this.part ?? null)).observe(this.box);
  }

  rootOf(by) {
    if (!this.roots.has(by)) this.roots.set(by, by === "fields" ? this.byField() : this.byTensor(by));
    return this.roots.get(by);
  }

  byTensor(by) {
    const root = new Part(this.app.facts.file, null), { tensors, graphs } = this.app.model;
    const users = new Map();
    if (by === "operator") {
      for (const graph of graphs) {
        for (const node of graph.nodes) {
          for (const name of node.inputs) {
            const tensor = graph.weights.get(name);
            if (tensor !== undefined && !users.has(tensor)) users.set(tensor, node.op);
          }
        }
      }
    }
    let inside = 0;
    tensors.forEach((tensor, at) => {
      const name = tensor.name || `tensor ${at}`;
      if (!tensor.file) inside += tensor.size;
      if (!tensor.size) return;
      let names = name.split(/[./]|::/).filter(Boolean);
      if (by === "operator") names = [users.get(tensor) || tensor.op || "(not used)", name];
      if (by === "dtype") names = [dtypeName(this.app.bytes, tensor.code), name];
      root.add(names, tensor.size, tensor.element);
    });
    root.add(["(all else of the file)"], Math.max(0, this.app.facts.size - inside), this.app.bytes.root);
    return root;
  }

  byField() {
    const root = new Part(this.app.facts.file, null), { bytes } = this.app;
    const take = (parent, names) => {
      for (const kid of bytes.kids(parent)) {
        const field = kid.field === null ? kid.step : kid.field.name, size = kid.stop - kid.start;
        const deep = kid.message === "GraphProto" || kid.message === "FunctionProto";
        const many = kid.field !== null && kid.field.repeated;
        if (deep) take(kid, [...names, kid.step]);
        else root.add(many ? [...names, field, kid.step] : [...names, field], size, kid);
      }
    };
    take(bytes.root, []);
    return root;
  }

  show(part) {
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    if (!width || !height) return;
    this.part = part ?? this.rootOf($("sizes-by").value);
    this.canvas.width = Math.round(width * devicePixelRatio);
    this.canvas.height = Math.round(height * devicePixelRatio);
    this.rectangles = [];
    this.divide(this.part, 1, 1, width - 2, height - 2, 0, -1);
    this.trail();
    this.draw();
  }

  trail() {
    const box = clear($("sizes-trail"));
    const chain = [];
    for (let at = this.part; at !== null; at = at.parent) chain.unshift(at);
    for (const part of chain) {
      const link = make("button", "link", part.name);
      link.addEventListener("click", () => this.show(part));
      box.append(link, make("span", "faint", `${sizeText(part.size)}  `));
    }
  }

  // Fills a rectangle with the parts of a part, the largest first, in rows along the shorter side.
  divide(part, left, top, width, height, depth, color) {
    const parts = [...part.parts.values()].filter((one) => one.size > 0).sort((a, b) => b.size - a.size);
    let left_ = left, top_ = top, wide = width, high = height;
    let rest = parts.reduce((sum, one) => sum + one.size, 0);
    for (let at = 0; at < parts.length;) {
      const along = Math.min(wide, high), scale = wide * high / rest;
      if (!(along >= 1.5)) return;
      let stop = at + 1, sum = parts[at].size, worst = ratio(parts[at].size, parts[at].size, sum, along, scale);
      while (stop < parts.length) {
        const next = ratio(parts[at].size, parts[stop].size, sum + parts[stop].size, along, scale);
        if (next > worst) break;
        worst = next;
        sum += parts[stop].size;
        stop++;
      }
      const across = sum * scale / along;
      let offset = 0;
      for (; at < stop; at++) {
        const length = along * parts[at].size / sum, shade = color < 0 ? at : color;
        if (wide < high) this.add(parts[at], left_ + offset, top_, length, across, depth, shade);
        else this.add(parts[at], left_, top_ + offset, across, length, depth, shade);
        offset += length;
      }
      if (wide < high) {
        top_ += across;
        high -= across;
      } else {
        left_ += across;
        wide -= across;
      }
      rest -= sum;
    }
  }

  add(part, left, top, width, height, depth, color) {
    const [inner, name] = part.joined;
    const isDivided = inner.parts.size > 0 && Math.min(width, height) >= LEAST_SIDE && depth <= 12;
    const hasTitle = width > 50 && height > (isDivided ? 2 * TITLE : 15);
    this.rectangles.push({ part: inner, name, left, top, width, height, depth, color, isDivided, hasTitle });
    if (!isDivided) return;
    const title = hasTitle ? TITLE : 2;
    this.divide(inner, left + 2, top + title, width - 4, height - title - 2, depth + 1, color);
  }

  draw() {
    if (!this.canvas.clientWidth) return;
    const context = this.canvas.getContext("2d"), { colors } = this.app;
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.fillStyle = colors.paper;
    context.fillRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    context.textBaseline = "alphabetic";
    for (const one of this.rectangles) {
      const hue = one.part.element === this.app.bytes.root ? colors.shape : colors.hues[one.color % colors.hues.length];
      context.fillStyle = hue;
      context.globalAlpha = one.isDivided ? 0.3 : 0.85;  // what is too small to be divided is one surface
      context.fillRect(one.left + 0.5, one.top + 0.5, Math.max(0.5, one.width - 1), Math.max(0.5, one.height - 1));
      context.globalAlpha = 1;
      if (!one.hasTitle) continue;
      const group = one.isDivided;
      context.fillStyle = group ? colors.ink : colors.onColor;
      context.font = group ? "600 12px system-ui, sans-serif" : "12px system-ui, sans-serif";
      const size = one.width > 140 ? `  ${sizeText(one.part.size)}` : "";
      const whole = `${one.name}${size}`, fits = context.measureText(plain(whole)).width <= one.width - 10;
      write(context, fits ? whole : cutTo(context, one.name, one.width - 10), one.left + 5, one.top + 13);
    }
  }

  partAt(event) {
    const x = event.offsetX, y = event.offsetY;
    for (let at = this.rectangles.length - 1; at >= 0; at--) {
      const one = this.rectangles[at];
      if (x >= one.left && x < one.left + one.width && y >= one.top && y < one.top + one.height) return one;
    }
    return null;
  }

  hover(event) {
    const one = this.partAt(event);
    if (one === null) {
      this.app.tip(null);
      return;
    }
    const names = [];
    for (let at = one.part; at.parent !== null; at = at.parent) names.unshift(at.name);
    const share = `${(100 * one.part.size / this.part.size).toPrecision(3)}%`;
    this.app.tip(event, [names.join(" / "), `${count(one.part.size)} bytes, ${share} of what is shown`]);
  }

  // What else is in the file than weights.
  byFields() {
    $("sizes-by").value = "fields";
    this.show(null);
  }

  click(event) {
    const one = this.partAt(event);
    if (one === null) return;
    if (one.part.parts.size) this.show(one.part);
    else if (one.part.element === this.app.bytes.root) this.byFields();
    else if (one.part.element !== null) this.app.select(one.part.element);
  }
}

// How far from a square the worst of a row is.
function ratio(largest, smallest, sum, along, scale) {
  const across = sum * scale / along;
  return Math.max(largest * scale / across / across, across * across / (smallest * scale));
}
