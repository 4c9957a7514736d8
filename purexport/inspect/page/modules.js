// Modules: nodes grouped by the module that they are of, so that it can be one box, and what feeds what among boxes.
//
// The path of a module is what torch.onnx says of a node's scopes, else the name of the node up to its last slash.
// Nodes of one module that follow each other are one group, so a module that is called twice is two. A run of nodes in
// the order of the file closes no cycle when it becomes one box, if the file is in order. What needs no input is moved
// down to its first user beforehand, and taken into the module of its users where it has none of its own. So is what
// lies between two nodes of one module. Many nodes of a module itself, beside modules in it, are a group too.

const MOST_STEPS = 24;  // of a path
const SMALL = 100;  // nodes up to which a graph opens unfolded
const BOXES = 40;  // at which a larger one opens, as far as its modules allow
const FEWEST = 4, MOST_FORCED = 400;
const LEAST_PART = 50;  // the part of all nodes that a module has at least, if it opens unfolded
const MOST_KIDS = 200;  // of a module, above which they become ranges
const MOST_FLAT = 2000;  // nodes of a module without modules in it, above which they become ranges
const MOST_UNFOLDED = 20000;  // boxes that are unfolded at once
const MOST_LOOSE = 11;  // nodes in a row beside modules, above which they become a range
const FAMILY = 6;  // inputs or outputs whose names differ in numbers: from so many on they may share boxes

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
    this.isRange = false;  // what lies side by side in a module and is not a module of its own
    this.isLoose = false;  // such a range of nodes
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
    if (this.isRange && !/^\d/.test(this.name)) return this.name;
    return /^\d/.test(this.name) && owner !== null ? `${owner.name.split(".").pop()}.${this.name}` : this.name;
  }
}

class Modules {
  constructor(graph) {
    this.graph = graph;
    this.paths = graph.nodes.map(pathOf);
    this.wire();
    this.order = Int32Array.from(graph.nodes.keys());
    this.named = this.paths.some((path) => path.length > 0);
    this.any = this.named || graph.nodes.length > MOST_FLAT;  // whether anything folds
    if (this.named) this.settle();
    this.positions = new Int32Array(graph.nodes.length);
    this.order.forEach((node, at) => { this.positions[node] = at; });
    this.root = new Group("", null, 0, graph.nodes.length, 0);
    this.root.open = true;
    this.begin();
  }

  // Who feeds whom, each pair once: `feeds` has for each node the nodes, or inputs behind these, that it takes from.
  wire() {
    const { graph } = this, producers = this.producers = new Map(), count = graph.nodes.length;
    this.inputs = graph.fed;
    this.inputs.forEach((name, at) => producers.set(name, count + at));
    graph.nodes.forEach((node, at) => {
      for (const name of node.outputs) if (name) producers.set(name, at);
    });
    const joined = new Int32Array(count + this.inputs.length).fill(-1);  // the last node that each one was joined to
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
    const isFlat = found.length > MOST_FLAT && found.every((kid) => typeof kid === "number");
    group.cached = isFlat ? this.parts(group, found) : this.ranges(group, this.joinLoose(group, found));
    return group.cached;
  }

  // Very many nodes without modules become ranges of as many as there are ranges.
  parts(group, positions) {
    if (group.isRange) return positions;
    const size = Math.ceil(Math.sqrt(positions.length)), found = [];
    for (let at = 0; at < positions.length; at += size) {
      const part = positions.slice(at, at + size), [first, last] = [part[0], part[part.length - 1]];
      found.push(this.loose(`nodes ${first} ... ${last}`, group, part));
    }
    return found;
  }

  // Many nodes in a row that are of the module itself, as those that compute a mask, become a range beside its modules.
  joinLoose(group, kids) {
    if (group.isRange || kids.every((kid) => typeof kid === "number")) return kids;
    const found = [], op = (position) => this.graph.nodes[this.order[position]].op;
    for (let at = 0; at < kids.length;) {
      let stop = at;
      while (stop < kids.length && typeof kids[stop] === "number") stop++;
      const part = kids.slice(at, Math.max(stop, at + 1));
      if (part.length > MOST_LOOSE) {
        found.push(this.loose(`${op(part[0])} ... ${op(part[part.length - 1])}`, group, part));
      } else {
        found.push(...part);
      }
      at += part.length;
    }
    return found;
  }

  loose(name, group, positions) {
    const found = this.range(name, group, positions[0], positions[positions.length - 1] + 1, positions);
    found.isLoose = true;
    return found;
  }

  range(name, group, start, stop, kids) {
    const found = new Group(name, group, start, stop, group.depth);
    found.isRange = true;
    found.cached = kids;
    for (const kid of kids) if (typeof kid !== "number") kid.parent = found;
    return found;
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
      found.push(this.range(`${named[0].name} ... ${named[named.length - 1].name}`, group, start, stop, part));
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

  // Folded so that the graph begins with few boxes: the largest modules that fit are unfolded, one after the other, and
  // the items of a list, as layers, together or not at all.
  begin() {
    if (this.graph.nodes.length <= SMALL) {
      this.setAll(true);
      return;
    }
    let shown = [...this.kids(this.root)];
    const isGroup = (kid) => typeof kid !== "number" && !kid.isLoose;
    const isItem = (kid) => isGroup(kid) && !kid.isRange && /^\d/.test(kid.name);  // of a list, as a layer
    for (;;) {
      const groups = shown.filter(isGroup).sort((a, b) => b.size - a.size);
      const isLarge = (group) => group.size * LEAST_PART > this.graph.nodes.length;
      const alike = (group) => (isItem(group) ? groups.filter((one) => isItem(one) && one.parent === group.parent)
        : [group]);
      const grown = (list) => list.reduce((sum, group) => sum + this.kids(group).length - 1, shown.length);
      const fits = (group) => grown(alike(group)) <= BOXES;
      const must = (group) => shown.length < 2 || (shown.length < FEWEST && this.kids(group).length <= MOST_FORCED);
      const isFew = shown.length < FEWEST;
      const wanted = groups.find((group) => (isFew || isLarge(group)) && fits(group)) ?? groups.find(must);
      const next = shown.length > BOXES ? undefined : wanted;
      if (next === undefined) return;
      const opened = new Set(fits(next) ? alike(next) : [next]);
      for (const group of opened) group.open = true;
      shown = shown.flatMap((kid) => (opened.has(kid) ? this.kids(kid) : [kid]));
    }
  }

  // Folds or unfolds all, the outer before the inner. Says whether all are: a limit keeps it quick.
  setAll(open) {
    const todo = [this.root];
    let left = MOST_UNFOLDED - this.kids(this.root).length, isDone = true;
    for (let at = 0; at < todo.length; at++) {
      for (const kid of this.kids(todo[at])) {
        if (typeof kid === "number") continue;
        const more = this.kids(kid).length;
        kid.open = open && todo[at].open && more <= left;
        if (kid.open) left -= more;
        isDone = isDone && kid.open === open;
        todo.push(kid);
      }
    }
    return isDone;
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
    this.number();
    this.ports(graph);
    this.join();
  }

  // The vertex of each node.
  number() {
    const { order, graph, inputs } = this.modules;
    this.vertexOf = new Int32Array(graph.nodes.length + inputs.length);
    for (let vertex = 0; vertex < this.count; vertex++) {
      for (let at = this.starts[vertex]; at < this.starts[vertex + 1]; at++) this.vertexOf[order[at]] = vertex;
    }
  }

  // Inputs and outputs as boxes of one or more names. Those of a family, as past_key_values.0.key, share a box where
  // the same boxes use or make them.
  ports(graph) {
    const nodes = graph.nodes.length, { feeds, producers, inputs: names } = this.modules;
    const users = names.map(() => []);
    feeds.forEach((list, to) => {
      for (const from of list) if (from >= nodes) users[from - nodes].push(this.vertexOf[to]);
    });
    const makers = graph.outputs.map((name) => {
      const source = producers.get(name);
      return source === undefined ? "none" : source < nodes ? this.vertexOf[source] : `input ${source}`;
    });
    const inputs = sharing(names, (at) => [...new Set(users[at])].join());
    const outputs = sharing(graph.outputs, (at) => makers[at]);
    this.inputCount = inputs.length;
    this.outputCount = outputs.length;
    this.inputs = inputs.map((list) => list.map((at) => names[at]));
    this.outputs = outputs.map((list) => list.map((at) => graph.outputs[at]));
    inputs.forEach((list, vertex) => {
      for (const at of list) this.vertexOf[nodes + at] = this.count + vertex;
    });
  }

  // The names of a vertex that is an input or an output; none for others.
  namesOf(vertex) {
    const at = vertex - this.count;
    return (at < this.inputCount ? this.inputs[at] : this.outputs[at - this.inputCount]) ?? NONE;
  }

  // The vertex of an input or an output by name; -1 for none. `isOutput` where both may have the name.
  portOf(name, isOutput) {
    const at = (isOutput ? this.outputs : this.inputs).findIndex((names) => names.includes(name));
    return at < 0 ? -1 : at + this.count + (isOutput ? this.inputCount : 0);
  }

  collect(group) {
    for (const kid of this.modules.kids(group)) {
      if (typeof kid === "number") {
        this.starts.push(kid);
      } else if (!kid.open) {
        this.groups[this.starts.length] = kid;
        this.starts.push(kid.start);
      } else if (kid.isLoose) {
        this.collect(kid);
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
    const { order, feeds, producers } = this.modules;
    const total = this.count + this.inputCount + this.outputCount;
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
    this.outputs.forEach((names, at) => {
      const source = producers.get(names[0]);
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
    const { producers } = this.modules, found = new Set();
    const take = (name) => {
      const source = producers.get(name);
      if (source !== undefined && this.vertexOf[source] === from) found.add(name);
    };
    for (const node of this.nodesOf(to)) for (const name of [...node.inputs, ...node.outer]) take(name);
    if (to >= this.count + this.inputCount) for (const name of this.namesOf(to)) take(name);
    return [...found];
  }
}

// The places of names in boxes: names of a large family, which begin alike up to a number, share one if they have the
// same key.
function sharing(names, keyOf) {
  const familyOfName = (name) => name.replace(/\d.*$/, ""), sizes = new Map();
  for (const name of names) sizes.set(familyOfName(name), (sizes.get(familyOfName(name)) ?? 0) + 1);
  const boxes = new Map();
  names.forEach((name, at) => {
    const family = familyOfName(name);
    const key = family === name || sizes.get(family) < FAMILY ? String(at) : `${family} ${keyOf(at)}`;
    if (boxes.has(key)) boxes.get(key).push(at);
    else boxes.set(key, [at]);
  });
  return [...boxes.values()];
}

// What all of some names begin with, up to a whole step of them.
function sharedName(names) {
  const steps = names.map((name) => name.split("."));
  const most = steps.reduce((shared, one) => sharedSteps(steps[0], one, shared), steps[0].length);
  if (most) return steps[0].slice(0, most).join(".");
  return names[0].replace(/\d.*$/, "").replace(/[._/]+$/, "") || names[0];
}
