// The bytes of the file as elements: the reading of purexport/inspect/elements.py, one level at a time, in the browser.
// Bad bytes raise nothing outside of this file: they are an element with a `problem`. Offsets are those of the file,
// also where the page has only the ends of a value.

const VARINT = 0, I64 = 1, LEN = 2, SGROUP = 3, EGROUP = 4, I32 = 5;
const WIRE_NAMES = ["varint", "i64", "len", "group", "egroup", "i32"];
const WIDTHS = { float: 4, double: 8 };
const MAX_DEPTH = 100;
const UNREADABLE = "(unreadable)";
const MISSING = -1;  // a byte that is not in the page

class Bad {
  constructor(reason, at) {
    this.reason = reason;
    this.at = at;
  }
}

// The ranges of the file that the page has, as one buffer.
class Store {
  constructor(ranges, bytes, size) {
    this.bytes = bytes;
    this.size = size;
    this.starts = [];
    this.stops = [];
    this.bases = [];
    let base = 0;
    for (let at = 0; at < ranges.length; at += 2) {
      this.starts.push(ranges[at]);
      this.stops.push(ranges[at] + ranges[at + 1]);
      this.bases.push(base - ranges[at]);
      base += ranges[at + 1];
    }
    this.low = this.high = this.base = 0;
    this.after = 0;
  }

  // The byte at an offset, or MISSING.
  at(offset) {
    if (offset < this.low || offset >= this.high) {
      const index = lastNotAbove(this.starts, offset);
      if (index < 0 || offset >= this.stops[index]) return MISSING;
      this.low = this.starts[index];
      this.high = this.stops[index];
      this.base = this.bases[index];
    }
    return this.bytes[offset + this.base];
  }

  // The bytes of a range as a view, or null where some are not in the page.
  view(start, stop) {
    if (start === stop) return new Uint8Array(0);
    if (this.at(start) === MISSING || stop > this.high) return null;
    return this.bytes.subarray(start + this.base, stop + this.base);
  }

  text(start, stop) {
    const view = this.view(start, stop);
    return view === null ? "" : decoder.decode(view);
  }

  // An unsigned number; `after` becomes the position behind it. Above 2**53 it is not exact: `bigAt` is.
  number(at, end, limit, what) {
    let value = 0, scale = 1;
    const stop = Math.min(end, at + limit);
    for (let here = at; here < stop; here++) {
      const byte = this.at(here);
      if (byte === MISSING) throw new Bad("not in this page", here);
      value += (byte & 127) * scale;
      if (byte < 128) {
        this.after = here + 1;
        return value;
      }
      scale *= 128;
    }
    throw new Bad(end - at < limit ? `truncated ${what}` : `${what} of more than ${limit} bytes`, at);
  }

  tag(at, end) {
    const tag = this.number(at, end, 5, "tag");
    if (tag >= 2 ** 32) throw new Bad("the field number is above 2**29 - 1", at);
    return tag;
  }

  length(at, end) {
    const length = this.number(at, end, 5, "length");
    if (length > 2 ** 31 - 1) throw new Bad(`length ${length} is above the limit of 2**31 - 1`, at);
    return length;
  }

  // The position behind the value of a field whose tag ended at `at`; lengths must fit here.
  skip(at, end, tag) {
    const wire = tag % 8;
    if (wire === VARINT) {
      this.number(at, end, 10, "varint");
      return this.after;
    }
    if (wire === LEN) {
      const length = this.length(at, end), body = this.after;
      if (length > end - body) {
        throw new Bad(`truncated: a length of ${length} bytes, but ${end - body} are left here`, at);
      }
      return body + length;
    }
    if (wire === I32 || wire === I64) {
      const width = wire === I32 ? 4 : 8;
      if (at + width > end) throw new Bad(`truncated fixed-width value: ${end - at} of ${width} bytes`, at);
      return at + width;
    }
    if (wire === SGROUP) return this.skipGroup(at, end, Math.floor(tag / 8));
    if (wire === EGROUP) throw new Bad(`end of group ${Math.floor(tag / 8)}, which is not open here`, at);
    throw new Bad(`wire type ${wire} does not exist`, at);
  }

  skipGroup(at, end, number) {
    const open = [[number, at]];
    while (open.length) {
      const last = open[open.length - 1];
      if (open.length > MAX_DEPTH) throw new Bad(`more than ${MAX_DEPTH} nested messages and groups`, at);
      if (at >= end) throw new Bad(`group ${last[0]} is not closed`, last[1]);
      const start = at, tag = this.tag(at, end), inner = Math.floor(tag / 8);
      at = this.after;
      if (tag % 8 === SGROUP) open.push([inner, at]);
      else if (tag % 8 !== EGROUP) at = this.skip(at, end, tag);
      else if (inner !== last[0]) throw new Bad(`end of group ${inner} inside group ${last[0]}`, start);
      else open.pop();
    }
    return at;
  }

  // An exact number: below 2**64, as a BigInt.
  bigAt(at, end) {
    let value = 0n, shift = 0n;
    for (let here = at; here < end; here++, shift += 7n) {
      const byte = this.at(here);
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) {
        this.after = here + 1;
        return BigInt.asUintN(64, value);
      }
    }
    throw new Bad("truncated varint", at);
  }
}

const decoder = new TextDecoder();

// The index of the last number of an ascending list that is not above `value`; -1 where all are.
function lastNotAbove(numbers, value) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// One field as it lies in the bytes; the names are those of the class of the same name in Python.
class Element {
  constructor(parent, index, owner, field, message, number, wire, start, body, stop, problem, bad) {
    this.parent = parent;
    this.index = index;  // among those of its field
    this.owner = owner;
    this.field = field;
    this.message = message;
    this.number = number;
    this.wire = wire;
    this.start = start;
    this.body = body;
    this.stop = stop;
    this.problem = problem;
    this.bad = bad;
    this.cached = this.begins = null;
  }

  // Its name within the message: `node[3]`, `?77`, `graph#2`. Most elements are never asked for it.
  get step() {
    const { field, index } = this;
    if (this.parent === null) return "";
    if (this.wire < 0) return UNREADABLE;
    if (field !== null && field.repeated) return this.packed ? field.name : `${field.name}[${index}]`;
    const name = field === null ? `?${this.number}` : field.name;
    return index === 0 ? name : `${name}#${index + 1}`;
  }

  get depth() {
    return this.parent === null ? 0 : this.parent.depth + 1;
  }

  get path() {
    return this.parent === null || this.parent.parent === null ? this.step : `${this.parent.path}.${this.step}`;
  }

  get payload() {
    return this.stop - this.body;
  }

  get wireName() {
    return WIRE_NAMES[this.wire] ?? "";
  }

  get packed() {
    return this.field !== null && this.wire === LEN && this.field.wire !== LEN;
  }
}

// A file: its bytes and the table of fields.
class Bytes {
  constructor(facts, bytes) {
    this.store = new Store(facts.ranges, bytes, facts.size);
    this.enums = facts.enums;
    this.dtypes = facts.dtypes;
    this.tables = new Map();
    this.names = new Map();
    for (const [owner, rows] of Object.entries(facts.messages)) {
      const table = new Map();
      for (const [number, name, kind, wire, repeated, isText] of rows) {
        const message = Object.hasOwn(facts.messages, kind) ? kind : null;
        table.set(number, { number, name, kind, wire, repeated: repeated === 1, isText: isText === 1, message });
      }
      this.tables.set(owner, table);
    }
    this.root = new Element(null, 0, facts.root, null, facts.root, 0, LEN, 0, 0, facts.size, "", -1);
  }

  // The fields of a message, kept with it.
  kids(parent) {
    if (parent.cached === null) parent.cached = this.children(parent);
    return parent.cached;
  }

  starts(parent) {
    if (parent.begins === null) parent.begins = this.kids(parent).map((kid) => kid.start);
    return parent.begins;
  }

  // The fields of a message in the order of its bytes; nothing for other elements.
  children(parent) {
    const found = [];
    if (parent.message === null || parent.depth > MAX_DEPTH) return found;
    const table = this.tables.get(parent.message), counts = new Map();
    let at = parent.body;
    while (at < parent.stop) {
      const child = this.element(parent, table, counts, at);
      found.push(child);
      at = child.stop;
    }
    return found;
  }

  element(parent, table, counts, at) {
    const store = this.store, end = parent.stop, owner = parent.message;
    let tag, body, stop, problem = "";
    try {
      tag = store.tag(at, end);
      body = store.after;
      if (tag < 8) throw new Bad("field number 0", at);
      if (tag % 8 === LEN) {
        const length = store.length(body, end);
        body = store.after;
        stop = body + length;
        if (stop > end) {
          problem = `cut off: ${length} bytes announced, ${end - body} are here`;
          stop = end;
        }
      } else {
        stop = store.skip(body, end, tag);
      }
    } catch (error) {
      if (!(error instanceof Bad)) throw error;
      return new Element(parent, 0, owner, null, null, 0, -1, at, at, end, error.reason, error.at);
    }
    const number = Math.floor(tag / 8), wire = tag % 8;
    let field = table.get(number) ?? null;
    if (field !== null && wire !== field.wire && !(field.repeated && field.wire !== LEN && wire === LEN)) field = null;
    let message = field === null ? null : field.message;
    if (message !== null && parent.depth >= MAX_DEPTH) {
      message = null;
      problem = problem || `more than ${MAX_DEPTH} nested messages`;
    }
    problem = problem || this.packingProblem(field, wire, body, stop);
    const index = indexOf(field, tag, counts), bad = problem ? stop : -1;
    return new Element(parent, index, owner, field, message, number, wire, at, body, stop, problem, bad);
  }

  packingProblem(field, wire, body, stop) {
    if (field === null || wire !== LEN || field.wire === LEN || body === stop) return "";
    const width = WIDTHS[field.kind];
    if (width === undefined) {
      return this.store.at(stop - 1) > 127 ? "the last number of a packed field is cut off" : "";
    }
    return (stop - body) % width ? `a packed ${field.kind} field whose size is no multiple of ${width}` : "";
  }

  // The elements about an offset, outermost first.
  chainAt(offset) {
    const chain = [];
    let at = this.root;
    while (at.message !== null) {
      const kids = this.kids(at), index = lastNotAbove(this.starts(at), offset);
      if (index < 0 || offset >= kids[index].stop) break;
      at = kids[index];
      chain.push(at);
      if (offset < at.body) break;
    }
    return chain;
  }

  // The element of a path as the page and the verbs write it, or null.
  find(path) {
    let at = this.root;
    for (const step of path.match(/(?:[^.[\]]|\[[^\]]*\])+/g) ?? []) {
      const next = this.kids(at).find((kid) => kid.step === step);
      if (next === undefined) return null;
      at = next;
    }
    return at === this.root ? null : at;
  }
}

// The number of an element among those of its field; packed ones count together with what follows.
function indexOf(field, tag, counts) {
  const key = field === null ? tag : -field.number;
  const count = counts.get(key) ?? 0;
  if (field === null || tag % 8 !== LEN || field.wire === LEN) counts.set(key, count + 1);
  return count;
}
