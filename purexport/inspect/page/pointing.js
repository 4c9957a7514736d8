// What is at a place of a drawn graph, and what is said of it.

const NEAR_LINE = 6;  // pixels from a line at which the pointer is on it
const MOST_TIPS = 8;

class Pointing extends Drawing {
  world(atX, atY) {
    return [this.x + atX / this.scale, this.y + atY / this.scale];
  }

  vertexAt(atX, atY) {
    if (!this.ready) return -1;
    const { layout } = this, [x, y] = this.world(atX, atY), at = layout.layerAt(y);
    if (at < 0 || y - layout.tops[at] > BOX) return -1;
    const found = layout.rows[at].find((vertex) => layout.kind[vertex] !== BEND
      && Math.abs(layout.x[vertex] - x) <= layout.widths[vertex] / 2);
    return found ?? -1;
  }

  // The innermost group whose frame has its title at a place; null for none.
  titleAt(atX, atY) {
    if (!this.ready || this.scale < LEAST_TEXT) return null;
    const [x, y] = this.world(atX, atY);
    const isAt = (frame) => {
      const [left, right, top] = this.titleOf(frame);
      return x >= left && x <= right && y >= top && y <= top + HEAD;
    };
    return this.layout.frames.findLast(isAt)?.group ?? null;
  }

  // The ends of the line at a place, [from, to]; null for none.
  lineAt(atX, atY) {
    if (!this.ready || this.scale < LEAST_SHAPE) return null;
    const { layout } = this, [x, y] = this.world(atX, atY), layer = layout.layerAt(y);
    for (const at of [layer, layer - 1]) {
      for (const vertex of layout.rows[at] ?? []) {
        for (const below of layout.downs[vertex]) {
          const [left, top, right, bottom] = this.ends(vertex, below);
          if (y < top || y > bottom) continue;
          const part = partOf((y - top) / (bottom - top)), here = left + (right - left) * part;
          const steep = Math.abs(right - left) > 60 ? 2 : 1;
          const isNear = Math.abs(here - x) * this.scale <= NEAR_LINE * steep;
          if (isNear) return [this.sourceOf(vertex), this.targetOf(below)];
        }
      }
    }
    return null;
  }

  // Where the line through a bend leads to, if it leads to one vertex alone; else -1.
  targetOf(vertex) {
    let at = vertex;
    while (this.layout.kind[at] === BEND) {
      if (this.layout.downs[at].length !== 1) return -1;
      [at] = this.layout.downs[at];
    }
    return at;
  }

  // The element of a vertex: the node, or what the graph says of its input or output; null for a group.
  elementOf(vertex) {
    const { graph, layout, view } = this;
    if (view.groups[vertex] !== undefined) return null;
    if (layout.kind[vertex] === NODE) return this.nodeOf(vertex).element;
    return graph.values.get(view.namesOf(vertex)[0]) ?? null;
  }

  // A vertex in words.
  textOf(vertex) {
    if (vertex < 0) return "";
    const { layout, view } = this, kind = layout.kind[vertex], group = view.groups[vertex];
    if (group !== undefined) return `Module ${group.path}, folded, ${many(group.size, "node")}. Enter unfolds it.`;
    if (kind !== NODE) return `${kind === INPUT ? "Input" : "Output"} ${view.namesOf(vertex).join(", ")}`;
    const node = this.nodeOf(vertex), about = this.groupOf(vertex);
    const inside = about === null ? "" : `, of module ${about.path}. Enter folds it.`;
    return `${node.op} ${node.name}${inside}`;
  }

  tipOf(vertex) {
    const { layout, view } = this, group = view.groups[vertex];
    const types = this.given(vertex).slice(0, MOST_TIPS).map((name) => `${name}: ${this.typeOf(name) || "no type"}`);
    if (group !== undefined) {
      const parts = familiesOf(this.modules.nodesIn(group)).map(([family, number]) => `${number} ${family}`);
      return [group.path, `${many(group.size, "node")}: ${parts.join(", ")}`, ...types, "a click unfolds it"];
    }
    const node = layout.kind[vertex] === NODE ? this.nodeOf(vertex) : null;
    if (node === null) return [this.lines(vertex, layout.kind[vertex])[0], ...types];
    const operator = `${node.domain ? `${node.domain}::` : ""}${node.op}`;
    return [operator, node.name, ...types, this.paint === null ? "" : this.paint.textOf(node)];
  }

  // What flows along a line, with types.
  lineText(from, to) {
    const names = to < 0 ? this.given(from) : this.view.carried(from, to);
    const name = (vertex) => this.lines(vertex, this.layout.kind[vertex])[0];
    const ends = to < 0 ? `from ${name(from)}` : `${name(from)} \u2192 ${name(to)}`;
    return [ends, ...names.slice(0, MOST_TIPS).map((one) => `${one}: ${this.typeOf(one) || "no type"}`),
      names.length > MOST_TIPS ? `and ${names.length - MOST_TIPS} more` : ""];
  }
}

// How far a line has gone sideways after a part of its way down: that of the Bezier curve that is drawn.
function partOf(down) {
  let low = 0, high = 1;
  for (let round = 0; round < 12; round++) {
    const at = (low + high) / 2, y = 1.5 * at * (1 - at) ** 2 + 1.5 * at * at * (1 - at) + at ** 3;
    if (y < down) low = at;
    else high = at;
  }
  return 3 * low * low * (1 - low) + low ** 3;
}
