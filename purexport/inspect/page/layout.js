// A layered drawing of a graph, in time linear in its nodes and edges but for the sorting within layers.
//
// Vertices are those of a View, which also says who feeds whom, then the bends of edges. A vertex lies one layer
// below the lowest that feeds it; what needs no input lies just above its first user. Edges of one source share one
// chain of bends, from which they branch off. An edge that would need too many bends is no line but a stub with a name.
// Within layers vertices are ordered by the mean place of their neighbours, a few times down and up; then each layer
// is placed as near to its neighbours as the widths allow (isotonic regression, by pooling neighbours that push).

const ROW = 84, BOX = 42, GAP = 22, BEND_WIDTH = 8;
const MOST_BENDS = 400;  // of one chain
const NEAR = 30;  // layers above and below
const PORT = 0.05;  // the weight of an edge of an input or output
const NODE = 0, INPUT = 1, OUTPUT = 2, BEND = 3;

class Layout {
  constructor(view, widthOf) {
    const { count, inputCount, outputCount } = view, total = count + inputCount + outputCount;
    this.kind = new Array(total).fill(NODE).fill(INPUT, count).fill(OUTPUT, count + inputCount);
    this.source = [];  // of a bend: the vertex that its edge comes from
    this.stubs = new Map();  // vertex -> the sources of edges that are not drawn
    this.preds = view.preds;
    this.succs = view.succs;
    this.owners = view.owners();
    this.layers(total);
    this.bends(total);
    this.widths = this.kind.map((kind, at) => (kind === BEND ? BEND_WIDTH : widthOf(at, kind)));
    this.order();
    this.place();
    this.frames = framesOf(this, view);
    this.rise();
  }

  // The layer of each vertex. Edges that close a cycle, which only a broken file has, become stubs too.
  layers(total) {
    const sequence = this.sequence(total), place = new Int32Array(total);
    sequence.forEach((vertex, at) => { place[vertex] = at; });
    for (let vertex = 0; vertex < total; vertex++) {
      for (const from of this.preds[vertex]) if (place[from] >= place[vertex]) this.stub(from, vertex);
      this.preds[vertex] = this.preds[vertex].filter((from) => place[from] < place[vertex]);
      this.succs[vertex] = this.succs[vertex].filter((to) => place[vertex] < place[to]);
    }
    this.layer = new Int32Array(total);
    const constant = new Uint8Array(total);
    for (const vertex of sequence) {
      let layer = 0;
      constant[vertex] = this.kind[vertex] === NODE ? 1 : 0;
      for (const from of this.preds[vertex]) {
        layer = Math.max(layer, this.layer[from] + 1);
        if (!constant[from]) constant[vertex] = 0;
      }
      this.layer[vertex] = layer;
    }
    for (let at = total - 1; at >= 0; at--) {
      const vertex = sequence[at];
      if ((!constant[vertex] && this.preds[vertex].length) || !this.succs[vertex].length) continue;
      let layer = Infinity;
      for (const to of this.succs[vertex]) layer = Math.min(layer, this.layer[to] - 1);
      this.layer[vertex] = layer;
    }
  }

  // The vertices, each after those that feed it; those on a cycle in the order of the file, at the end.
  sequence(total) {
    const waits = this.preds.map((list) => list.length), done = new Uint8Array(total), found = [];
    const take = (vertex) => {
      done[vertex] = 1;
      found.push(vertex);
    };
    for (let vertex = 0; vertex < total; vertex++) if (!waits[vertex]) take(vertex);
    for (let next = 0, at = 0; found.length < total || at < found.length;) {
      for (; at < found.length; at++) {
        for (const to of this.succs[found[at]]) if (--waits[to] === 0 && !done[to]) take(to);
      }
      while (next < total && done[next]) next++;
      if (next < total) take(next);
    }
    return found;
  }

  stub(from, to) {
    if (!this.stubs.has(to)) this.stubs.set(to, []);
    this.stubs.get(to).push(from);
  }

  // Edges between neighbouring layers only: `ups` and `downs`. Short chains come first where there are too many.
  bends(total) {
    this.depth = 0;
    for (let vertex = 0; vertex < total; vertex++) this.depth = Math.max(this.depth, this.layer[vertex] + 1);
    this.ups = Array.from({ length: total }, () => []);
    this.downs = Array.from({ length: total }, () => []);
    const lengths = this.succs.map((list, from) => list.reduce((most, to) => {
      const length = this.layer[to] - this.layer[from] - 1;
      return length <= MOST_BENDS ? Math.max(most, length) : most;
    }, 0));
    const sources = lengths.map((_, from) => from).sort((a, b) => lengths[a] - lengths[b]);
    const layers = Array.from(this.layer);
    let left = 3 * total + 2000;
    for (const from of sources) {
      const length = lengths[from] <= left ? lengths[from] : 0, chain = [from];
      left -= length;
      for (let step = 1; step <= length; step++) {
        const bend = layers.length;
        layers.push(layers[from] + step);
        this.kind.push(BEND);
        this.source[bend] = from;
        this.ups.push([]);
        this.downs.push([]);
        this.link(chain[step - 1], bend);
        chain.push(bend);
      }
      for (const to of this.succs[from]) {
        const span = layers[to] - layers[from];
        if (span <= chain.length) this.link(chain[span - 1], to);
        else this.stub(from, to);
      }
    }
    this.layer = Int32Array.from(layers);
  }

  link(above, below) {
    this.downs[above].push(below);
    this.ups[below].push(above);
  }

  // The vertices of each layer from left to right.
  order() {
    this.rows = Array.from({ length: this.depth }, () => []);
    this.layer.forEach((layer, vertex) => this.rows[layer].push(vertex));
    const key = new Float64Array(this.layer.length), slot = new Float64Array(this.layer.length);
    const settle = (row) => row.forEach((vertex, at) => { slot[vertex] = at - row.length / 2; });
    this.rows.forEach(settle);
    const isTogether = this.together(key);
    const sweep = (row, neighbours) => {
      if (row.length < 2) return;
      for (const vertex of row) {
        const near = neighbours[vertex];
        let sum = 0;
        for (const other of near) sum += slot[other];
        key[vertex] = near.length ? sum / near.length : slot[vertex];
      }
      row.sort(isTogether(row));
      settle(row);
    };
    for (let round = 0; round < 4; round++) {
      for (let at = 1; at < this.depth; at++) sweep(this.rows[at], this.ups);
      for (let at = this.depth - 2; at >= 0; at--) sweep(this.rows[at], this.downs);
    }
  }

  // How to sort a row by `key` so that the boxes of a module, and its lines, stay together: a module has the mean key
  // of what it has in the row.
  together(key) {
    const byKey = (a, b) => key[a] - key[b], { owners, kind, source } = this;
    if (owners.every((list) => list.length === 0)) return () => byKey;
    const ownersOf = (vertex) => owners[kind[vertex] === BEND ? source[vertex] : vertex] ?? [];
    return (row) => {
      const sums = new Map();
      for (const vertex of row) {
        for (const group of ownersOf(vertex)) {
          const sum = sums.get(group);
          if (sum === undefined) sums.set(group, [key[vertex], 1]);
          else {
            sum[0] += key[vertex];
            sum[1] += 1;
          }
        }
      }
      if (!sums.size) return byKey;
      const mean = (group) => sums.get(group)[0] / sums.get(group)[1];
      return (a, b) => {
        const mine = ownersOf(a), theirs = ownersOf(b);
        let at = 0;
        while (at < mine.length && at < theirs.length && mine[at] === theirs[at]) at++;
        const one = at < mine.length ? mean(mine[at]) : key[a], other = at < theirs.length ? mean(theirs[at]) : key[b];
        return one - other || (mine[at]?.start ?? -1) - (theirs[at]?.start ?? -1);
      };
    };
  }

  // The middle of each vertex.
  place() {
    this.x = new Float64Array(this.layer.length);
    for (const row of this.rows) {
      let at = -row.reduce((sum, vertex) => sum + this.widths[vertex] + GAP, 0) / 2;
      for (const vertex of row) {
        this.x[vertex] = at + this.widths[vertex] / 2;
        at += this.widths[vertex] + GAP;
      }
    }
    for (let round = 0; round < 4; round++) {
      for (let at = 1; at < this.depth; at++) this.pull(this.rows[at], round < 3 ? [this.ups] : [this.ups, this.downs]);
      for (let at = this.depth - 2; at >= 0; at--) {
        this.pull(this.rows[at], round < 3 ? [this.downs] : [this.ups, this.downs]);
      }
    }
    this.upright();
    this.left = Infinity;
    this.right = -Infinity;
    for (let vertex = 0; vertex < this.x.length; vertex++) {
      this.left = Math.min(this.left, this.x[vertex] - this.widths[vertex] / 2);
      this.right = Math.max(this.right, this.x[vertex] + this.widths[vertex] / 2);
    }
    if (this.left > this.right) this.left = this.right = 0;
  }

  // Takes out what leans: the middle of the layers near by becomes 0. Within a layer nothing moves against another.
  upright() {
    const sums = new Float64Array(this.depth + 1);
    this.rows.forEach((row, at) => {
      sums[at + 1] = sums[at] + row.reduce((sum, vertex) => sum + this.x[vertex], 0) / (row.length || 1);
    });
    this.rows.forEach((row, at) => {
      const low = Math.max(0, at - NEAR), high = Math.min(this.depth, at + NEAR + 1);
      const middle = (sums[high] - sums[low]) / (high - low);
      for (const vertex of row) this.x[vertex] -= middle;
    });
  }

  // Moves a row as near to its neighbours' middle as the widths allow. Bends weigh more: long edges become straight.
  // Inputs and outputs weigh less: they stand beside the nodes, and do not push them aside.
  pull(row, sides) {
    if (row.length === 1) {
      this.ask(row[0], sides);
      this.x[row[0]] = this.goal;
      return;
    }
    const blocks = [];  // [sum of weight * wanted place, weight, number of vertices]
    let offset = 0;
    const offsets = row.map((vertex, at) => {
      if (at > 0) offset += (this.widths[row[at - 1]] + this.widths[vertex]) / 2 + GAP;
      return offset;
    });
    row.forEach((vertex, at) => {
      this.ask(vertex, sides);
      let block = [this.weight * (this.goal - offsets[at]), this.weight, 1];
      while (blocks.length) {
        const last = blocks[blocks.length - 1];
        if (last[0] / last[1] <= block[0] / block[1]) break;
        blocks.pop();
        block = [last[0] + block[0], last[1] + block[1], last[2] + block[2]];
      }
      blocks.push(block);
    });
    let at = 0;
    for (const [sum, weight, count] of blocks) {
      for (let step = 0; step < count; step++, at++) this.x[row[at]] = sum / weight + offsets[at];
    }
  }

  weightOf(kind, other) {
    if (kind === BEND && other === BEND) return 8;
    const isPort = kind === INPUT || kind === OUTPUT || other === INPUT || other === OUTPUT;
    return isPort ? PORT : 1;
  }

  // Sets `goal`, the middle of a vertex's neighbours, and `weight`, how much it counts.
  ask(vertex, sides) {
    let sum = 0, weights = 0;
    for (const side of sides) {
      for (const other of side[vertex]) {
        const weight = this.weightOf(this.kind[vertex], this.kind[other]);
        sum += weight * this.x[other];
        weights += weight;
      }
    }
    this.weight = weights || 0.01;
    this.goal = weights ? sum / weights : this.x[vertex];
  }

  // Where each layer begins: layers at which frames begin leave room for their titles.
  rise() {
    const above = new Float64Array(this.depth + 1), below = new Float64Array(this.depth + 1);
    for (const frame of this.frames) {
      above[frame.first] = Math.max(above[frame.first], frame.up * HEAD);
      below[frame.last + 1] = Math.max(below[frame.last + 1], frame.down * FOOT);
    }
    this.tops = [];
    let at = 0;
    for (let layer = 0; layer < this.depth; layer++) {
      at += above[layer] + below[layer];
      this.tops.push(at);
      at += ROW;
    }
    this.height = at - (ROW - BOX) + below[this.depth];
  }

  top(vertex) {
    return this.tops[this.layer[vertex]];
  }

  // The layer at a height, the one above where it is between two; -1 above all.
  layerAt(y) {
    return lastNotAbove(this.tops, y);
  }
}
