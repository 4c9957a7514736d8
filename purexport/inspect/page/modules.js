// Modules: nodes grouped by the module that they are of, so that it can be one box, and what feeds what among boxes.
//
// The path of a module is what torch.onnx says of a node's scopes, else the name of the node up to its last slash.
// Nodes of one module that follow each other are one group, so a module that is called twice is two. A run of nodes in
// the order of the file closes no cycle when it becomes one box, if the file is in order. What needs no input is moved
// down to its first user beforehand, and taken into the module of its users where it has none of its own. So is what
// lies between two nodes of one module.

const MOST_STEPS = 24;  // of a path
const SMALL = 100;  // nodes up to which a graph opens unfolded
const BOXES = 30;  // at which a larger one opens, as far as its modules allow
const FEWEST = 4, MOST_FORCED = 400;
const MOST_KIDS = 200;  // of a module, above which they become ranges

// `layer1.0.conv1/Conv` of ours and `/layer1/layer1.0/conv1/Conv` of torch.onnx are both layer1, 0, conv1.
function pathOf(node) {
  const scopes = node.scopes ? scopesIn(node.scopes) : node.name.split("/").slice(0, -1).filter(Boolean);
  const steps = [];
  let before = "";
  for (const scope of scopes) {
    const own = before && scope.startsWith(`${before}.`) ? scope.slice(before.length + 1) : scope;
    for (const step of own.split(".")) if (step && steps.length < MOST_STEPS) steps.push(step);
    before = scope;
  }
  return steps;
}

// The innermost module of `['', 'layer1', 'layer1.0', 'relu']`, whose last item is the call.
function scopesIn(text) {
  const items = Array.from(text.matchAll(/'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"/g), (found) => found[1] ?? found[2]);
  return items.slice(0, -1).slice(-1);
}

function sharedSteps(a, b, most) {
  let at = 0;
  while (at < most && at < a.length && at < b.length && a[at] === b[at]) at++;
  return at;
}

// A run of nodes of one module: positions from `start` to `stop` in the order of `Modules`.
class Group {
  constructor(name, parent, start, stop, depth) {
    this.name = name;
    this.parent = parent;
    this.start = start;
    this.stop = stop;
    this.depth = depth;  // how many steps of the path are its own and those of the groups about it
    this.open = false;
    this.cached = null;
    this.isRange = false;  // some of many modules side by side, which are no module together
  }

  get size() {
    return this.stop - this.start;
  }

  // The module that it is in; null for the graph.
  get owner() {
    let at = this.parent;
    while (at !== null && at.isRange) at = at.parent;
    return at === null || at.parent === null ? null : at;
  }

  get path() {
    return this.owner === null ? this.name : `${this.owner.path}.${this.name}`;
  }

  // A name that says something: a number alone does not.
  get title() {
    const { owner } = this;
    return /^\d/.test(this.name) && owner !== null ? `${owner.name.split(".").pop()}.${this.name}` : this.name;
  }
}

class Modules {
  constructor(graph) {
    this.graph = graph;
    this.paths = graph.nodes.map(pathOf);
    this.wire();
    this.order = Int32Array.from(graph.nodes.keys());
    this.any = this.paths.some((path) => path.length > 0);
    if (this.any) this.settle();
    this.positions = new Int32Array(graph.nodes.length);
    this.order.forEach((node, at) => { this.positions[node] = at; });
    this.root = new Group("", null, 0, graph.nodes.length, 0);
    this.root.open = true;
    this.begin();
  }

  // Who feeds whom, each pair once: `feeds` has for each node the nodes, or inputs behind these, that it takes from.
  wire() {
    const { graph } = this, producers = this.producers = new Map(), count = graph.nodes.length;
    graph.inputs.forEach((name, at) => {
      if (!graph.weights.has(name)) producers.set(name, count + at);
    });
    graph.nodes.forEach((node, at) => {
      for (const name of node.outputs) if (name) producers.set(name, at);
    });
    const joined = new Int32Array(count + graph.inputs.length).fill(-1);  // the last node that each one was joined to
    this.feeds = graph.nodes.map((node, to) => {
      const found = [];
      for (const names of [node.inputs, node.outer]) {
        for (const name of names) {
          const from = producers.get(name);
          if (from === undefined || joined[from] === to) continue;
          joined[from] = to;
          found.push(from);
        }
      }
      return found;
    });
  }

  // Brings what needs no input to its first user.
  settle() {
    const count = this.feeds.length, users = new Map();
    this.feeds.forEach((list, to) => {
      for (const from of list) {
        if (from >= count || this.feeds[from].length) continue;
        if (users.has(from)) users.get(from).push(to);
        else users.set(from, [to]);
      }
    });
    for (const [from, list] of users) {
      if (this.paths[from].length) continue;
      const first = this.paths[list[0]];
      const shared = list.reduce((most, user) => sharedSteps(first, this.paths[user], most), first.length);
      this.paths[from] = first.slice(0, shared);
    }
    const taken = new Uint8Array(count);
    let at = 0;
    const take = (node) => {
      if (taken[node]) return;
      taken[node] = 1;
      this.order[at++] = node;
    };
    for (let node = 0; node < count; node++) {
      if (users.has(node)) continue;
      for (const from of this.feeds[node]) if (users.has(from)) take(from);
      take(node);
    }
    for (let node = 0; node < count; node++) take(node);  // those that only each other use
    this.adopt();
  }

  // A node of no module between two of one, which a tool may have put there, is shown in that module.
  adopt() {
    const { order } = this;
    for (let at = 0, before = []; at < order.length; at++) {
      const path = this.pathAt(at);
      if (path.length) {
        before = path;
        continue;
      }
      let stop = at + 1;
      while (stop < order.length && !this.pathAt(stop).length) stop++;
      const shared = stop < order.length ? sharedSteps(before, this.pathAt(stop), MOST_STEPS) : 0;
      for (; at < stop; at++) this.paths[order[at]] = before.slice(0, shared);
      at = stop - 1;
    }
  }

  // What is in a group, in order: groups, and positions of nodes that are in no group inside.
  kids(group) {
    if (group.cached !== null) return group.cached;
    const found = [], { depth } = group;
    for (let at = group.start; at < group.stop;) {
      const path = this.pathAt(at);
      let stop = at + 1, shared = path.length;
      if (path.length > depth) {
        for (; stop < group.stop && this.pathAt(stop)[depth] === path[depth]; stop++) {
          shared = sharedSteps(path, this.pathAt(stop), shared);
        }
      }
      if (stop - at === 1) found.push(at);
      else found.push(new Group(path.slice(depth, shared).join("."), group, at, stop, shared));
      at = stop;
    }
    group.cached = this.ranges(group, found);
    return group.cached;
  }

  // Many modules side by side become ranges, as layers 0 to 99.
  ranges(group, kids) {
    const isGroup = (kid) => typeof kid !== "number";
    if (kids.length <= MOST_KIDS || group.isRange || kids.filter(isGroup).length < kids.length / 2) return kids;
    const size = Math.ceil(Math.sqrt(kids.length)), found = [];
    for (let at = 0; at < kids.length; at += size) {
      const part = kids.slice(at, at + size), named = part.filter(isGroup), last = part[part.length - 1];
      if (named.length < 2) {
        found.push(...part);
        continue;
      }
      const start = isGroup(part[0]) ? part[0].start : part[0], stop = isGroup(last) ? last.stop : last + 1;
      const range = new Group(`${named[0].name} ... ${named[named.length - 1].name}`, group, start, stop, group.depth);
      range.isRange = true;
      range.cached = part;
      for (const kid of named) kid.parent = range;
      found.push(range);
    }
    return found;
  }

  pathAt(position) {
    return this.paths[this.order[position]];
  }

  nodesIn(group) {
    return Array.from(this.order.subarray(group.start, group.stop), (node) => this.graph.nodes[node]);
  }

  // The groups about a position, outermost first.
  chain(position) {
    const found = [];
    for (let group = this.root; group !== null;) {
      const kids = this.kids(group), starts = (kid) => (typeof kid === "number" ? kid : kid.start);
      let low = 0, high = kids.length;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (starts(kids[middle]) <= position) low = middle;
        else high = middle;
      }
      group = typeof kids[low] === "number" || kids[low] === undefined ? null : kids[low];
      if (group !== null) found.push(group);
    }
    return found;
  }

  // Folded so that the graph begins with few boxes: the largest modules that fit are unfolded, one after the other.
  begin() {
    if (this.graph.nodes.length <= SMALL) {
      this.setAll(true);
      return;
    }
    let shown = [...this.kids(this.root)];
    for (;;) {
      const groups = shown.filter((kid) => typeof kid !== "number").sort((a, b) => b.size - a.size);
      const fits = (group) => shown.length - 1 + this.kids(group).length <= BOXES;
      const must = (group) => shown.length < 2 || (shown.length < FEWEST && this.kids(group).length <= MOST_FORCED);
      const next = shown.length > BOXES ? undefined : groups.find(fits) ?? groups.find(must);
      if (next === undefined) return;
      next.open = true;
      shown = shown.flatMap((kid) => (kid === next ? this.kids(next) : [kid]));
    }
  }

  setAll(open) {
    const todo = [this.root];
    while (todo.length) {
      for (const kid of this.kids(todo.pop())) {
        if (typeof kid === "number") continue;
        kid.open = open;
        todo.push(kid);
      }
    }
  }

  // Unfolds what is about a position; says whether anything changed.
  reveal(position) {
    const folded = this.chain(position).filter((group) => !group.open);
    for (const group of folded) group.open = true;
    return folded.length > 0;
  }

  view() {
    return new View(this);
  }
}

const NONE = [];

// The boxes of a graph as it is folded now. Vertices are nodes and folded groups, then inputs, then outputs.
class View {
  constructor(modules) {
    const { graph } = modules;
    this.modules = modules;
    this.starts = [];  // positions
    this.groups = [];  // of the vertices that are one
    this.frames = [];  // unfolded groups with the vertices in them, the outer before the inner: [group, from, to]
    this.collect(modules.root);
    this.count = this.starts.length;
    this.starts.push(modules.root.stop);
    this.inputCount = graph.inputs.length;
    this.outputCount = graph.outputs.length;
    this.join();
  }

  collect(group) {
    for (const kid of this.modules.kids(group)) {
      if (typeof kid === "number") {
        this.starts.push(kid);
      } else if (!kid.open) {
        this.groups[this.starts.length] = kid;
        this.starts.push(kid.start);
      } else {
        const frame = [kid, this.starts.length, 0];
        this.frames.push(frame);
        this.collect(kid);
        frame[2] = this.starts.length;
      }
    }
  }

  // The unfolded groups about each vertex, the outer before the inner.
  owners() {
    const found = Array.from({ length: this.count }, () => NONE);
    for (const [group, from, to] of this.frames) {
      const about = [...found[from], group];
      for (let vertex = from; vertex < to; vertex++) found[vertex] = about;
    }
    return found;
  }

  // The vertex of a position.
  vertexAt(position) {
    return lastNotAbove(this.starts, position);
  }

  // Edges between vertices, each pair once.
  join() {
    const { modules } = this, { graph, order, feeds, producers } = modules, nodes = graph.nodes.length;
    const total = this.count + this.inputCount + this.outputCount;
    this.vertexOf = new Int32Array(nodes + this.inputCount);
    for (let vertex = 0; vertex < this.count; vertex++) {
      for (let at = this.starts[vertex]; at < this.starts[vertex + 1]; at++) this.vertexOf[order[at]] = vertex;
    }
    for (let at = 0; at < this.inputCount; at++) this.vertexOf[nodes + at] = this.count + at;
    this.preds = Array.from({ length: total }, () => []);
    this.succs = Array.from({ length: total }, () => []);
    const joined = new Int32Array(total).fill(-1);
    const join = (source, to) => {
      const from = this.vertexOf[source];
      if (from === to || joined[from] === to) return;
      joined[from] = to;
      this.preds[to].push(from);
      this.succs[from].push(to);
    };
    for (let vertex = 0; vertex < this.count; vertex++) {
      for (let at = this.starts[vertex]; at < this.starts[vertex + 1]; at++) {
        for (const source of feeds[order[at]]) join(source, vertex);
      }
    }
    graph.outputs.forEach((name, at) => {
      const source = producers.get(name);
      if (source !== undefined) join(source, this.count + this.inputCount + at);
    });
  }

  // The nodes of a vertex.
  nodesOf(vertex) {
    const { graph, order } = this.modules, found = [];
    if (vertex >= this.count) return found;
    for (let at = this.starts[vertex]; at < this.starts[vertex + 1]; at++) found.push(graph.nodes[order[at]]);
    return found;
  }

  // The names of the values that one vertex brings to another.
  carried(from, to) {
    const { graph, producers } = this.modules, found = new Set();
    const take = (name) => {
      const source = producers.get(name);
      if (source !== undefined && this.vertexOf[source] === from) found.add(name);
    };
    for (const node of this.nodesOf(to)) for (const name of [...node.inputs, ...node.outer]) take(name);
    const output = to - this.count - this.inputCount;
    if (output >= 0) take(graph.outputs[output]);
    return [...found];
  }
}
