// What elements mean: values as text, and the model's graphs, nodes and tensors, gathered in one pass.

const SHOWN = 64;  // bytes of a value that are shown in a line
const SCOPES = "pkg.torch.onnx.name_scopes";  // metadata in which torch.onnx keeps the modules about a node
const MOST_SCOPES = 4096;  // bytes of it

// A line for people: the value, what a message is called, or how large it is.
function textOf(bytes, element) {
  if (element.message !== null) return summary(bytes, element);
  if (element.problem && element.wire < 0) return "";
  const { store } = bytes, { field, body, stop, payload } = element;
  try {
    if (element.wire === VARINT) return numberText(bytes, field, store.bigAt(body, stop));
    if (element.wire === I32 || element.wire === I64) return fixedText(store.view(body, stop), field);
    if (element.wire !== LEN) return `${payload.toLocaleString("en")} bytes`;
    if (field !== null && field.isText) return quoted(bytes, element);
    if (element.packed) return packedText(bytes, element);
    const view = store.view(body, stop);
    if (view === null || payload > SHOWN) return `${payload.toLocaleString("en")} bytes`;
    return isPrintable(view) && field !== null && field.kind !== "payload" ? `'${decoder.decode(view)}'` : hexOf(view);
  } catch (error) {
    if (!(error instanceof Bad)) throw error;
    return `malformed: ${error.reason}`;
  }
}

function numberText(bytes, field, value) {
  if (field === null || field.kind === "uint64") return String(value);
  if (field.kind === "int64") return String(BigInt.asIntN(64, value));
  const number = Number(BigInt.asIntN(32, value));
  const name = nameOfNumber(bytes, field, number);
  return name ? `${number} ${name}` : String(number);
}

function nameOfNumber(bytes, field, number) {
  if (Object.hasOwn(bytes.enums, field.kind)) return bytes.enums[field.kind][number] ?? `(no such ${field.kind})`;
  if (!["data_type", "elem_type", "key_type"].includes(field.name)) return "";
  return bytes.dtypes[number] ? bytes.dtypes[number][0] : "";
}

function fixedText(view, field) {
  const data = new DataView(view.buffer, view.byteOffset, view.byteLength);
  if (field === null) return hexOf(view);
  return view.byteLength === 4 ? singleText(data.getFloat32(0, true)) : String(data.getFloat64(0, true));
}

// The shortest text that is this float32.
function singleText(value) {
  for (let digits = 6; digits < 9; digits++) {
    const text = Number(value.toPrecision(digits));
    if (Math.fround(text) === value) return String(text);
  }
  return String(value);
}

function packedText(bytes, element) {
  const { store } = bytes, { field, body, stop } = element, width = WIDTHS[field.kind];
  const items = [];
  let at = body;
  while (at < stop && items.length < 16) {
    if (store.at(at) === MISSING) break;
    if (width !== undefined) {
      const view = store.view(at, at + width);
      if (view === null) break;
      items.push(fixedText(view, field));
      at += width;
    } else {
      items.push(numberText(bytes, field, store.bigAt(at, stop)));
      at = store.after;
    }
  }
  return `[${items.join(", ")}${at < stop ? `, ... ${element.payload.toLocaleString("en")} bytes` : ""}]`;
}

function quoted(bytes, element) {
  const { body, stop, payload } = element;
  if (payload <= 4 * SHOWN) return `'${bytes.store.text(body, stop)}'`;
  return `'${bytes.store.text(body, body + SHOWN)}...' (${payload.toLocaleString("en")} bytes)`;
}

const hexByte = (byte) => (byte === MISSING ? "--" : byte.toString(16).padStart(2, "0"));
const hexOf = (view) => Array.from(view, hexByte).join(" ");
const isPrintable = (view) => view.length > 0 && view.every((byte) => byte >= 32 && byte < 127);

function summary(bytes, element) {
  const name = element.message;
  if (name === "NodeProto") {
    const title = fieldText(bytes, element, "name") || fieldText(bytes, element, "output");
    return `${fieldText(bytes, element, "op_type")} ${title ? `'${title}'` : ""}`;
  }
  if (name === "TensorProto") {
    const [code, dims] = typeAndDims(bytes, element), title = fieldText(bytes, element, "name");
    return `${title ? `'${title}' ` : ""}${dtypeName(bytes, code)}[${dims.join(", ")}]`;
  }
  const named = [...bytes.tables.get(name).values()].map((field) => field.name);
  const key = ["name", "key", "domain", "tensor_name", "configuration_id"].find((one) => named.includes(one));
  const text = key === undefined ? "" : fieldText(bytes, element, key);
  if (key === "key") return `'${text}' = '${fieldText(bytes, element, "value")}'`;
  return text ? `'${text}'` : "";
}

const dtypeName = (bytes, code) => (bytes.dtypes[code] ? bytes.dtypes[code][0] : `type ${code}`);

// The text in a field of a message, cut where it is long; empty where it is absent.
function fieldText(bytes, element, name, most = 4 * SHOWN) {
  for (const child of bytes.children(element)) {
    if (child.field !== null && child.field.name === name) return textIn(bytes, child, most);
  }
  return "";
}

function textIn(bytes, element, most = 4 * SHOWN) {
  const stop = Math.min(element.stop, element.body + most);
  return bytes.store.text(element.body, stop) + (stop < element.stop ? "..." : "");
}

function intIn(bytes, element) {
  return Number(BigInt.asIntN(64, bytes.store.bigAt(element.body, element.stop)));
}

function typeAndDims(bytes, element) {
  let code = 0;
  const dims = [];
  for (const child of bytes.children(element)) {
    if (child.field === null || child.problem) continue;
    if (child.field.name === "data_type" && child.wire === VARINT) code = intIn(bytes, child);
    else if (child.field.name === "dims" && child.wire === VARINT) dims.push(intIn(bytes, child));
    else if (child.field.name === "dims") {
      for (let at = child.body; at < child.stop; at = bytes.store.after) {
        dims.push(Number(BigInt.asIntN(64, bytes.store.bigAt(at, child.stop))));
      }
    }
  }
  return [code, dims];
}

// `float32[batch, 3]` of a ValueInfoProto.
function valueType(bytes, info) {
  const type = bytes.kids(info).find((kid) => kid.message === "TypeProto");
  return type === undefined ? "" : typeText(bytes, type, 0);
}

function typeText(bytes, type, depth) {
  const kind = bytes.kids(type).find((kid) => kid.message !== null);
  if (kind === undefined || depth > 8) return "?";
  const kids = bytes.kids(kind);
  const inner = kids.find((kid) => kid.message === "TypeProto");
  if (inner !== undefined) return `${kind.step.replace("_type", "")} of ${typeText(bytes, inner, depth + 1)}`;
  const elem = kids.find((kid) => kid.field !== null && kid.field.name === "elem_type");
  const shape = kids.find((kid) => kid.message === "TensorShapeProto");
  const dims = shape === undefined ? ["..."] : bytes.kids(shape).filter((dim) => dim.message).map((dim) => {
    const value = bytes.kids(dim)[0];
    if (value === undefined) return "?";
    return value.wire === VARINT ? String(intIn(bytes, value)) : textIn(bytes, value);
  });
  return `${elem === undefined ? "?" : dtypeName(bytes, intIn(bytes, elem))}[${dims.join(", ")}]`;
}

// The graphs of a model, the main one first, then functions and the graphs in attributes; and all tensors.
class Model {
  constructor(bytes, facts) {
    this.bytes = bytes;
    this.facts = facts;
    this.graphs = [];
    this.tensors = [];
    this.info = new Map();
    for (const kid of bytes.kids(bytes.root)) {
      if (kid.message === "GraphProto") this.graph(kid, "main graph");
      else if (kid.message === "FunctionProto") this.graph(kid, "");
      else if (kid.message === "OperatorSetIdProto") this.opset(kid);
      else if (kid.message === null && kid.field !== null && !kid.problem) this.info.set(kid.step, textOf(bytes, kid));
    }
    if (bytes.root.message === "TensorProto") this.tensor(bytes.root);
    this.outer();
  }

  // What nodes take from outside by the graphs in them: names that no one inside makes. Inner graphs come later.
  outer() {
    const graphs = this.byElement = new Map(this.graphs.map((graph) => [graph.element, graph]));
    const free = new Map();
    for (const graph of this.graphs.slice(1).reverse()) {
      const made = new Set([...graph.inputs, ...graph.weights.keys()]), used = new Set(graph.outputs);
      for (const node of graph.nodes) {
        node.outer = this.outerOf(node, graphs, free);
        for (const name of node.outputs) made.add(name);
        for (const name of [...node.inputs, ...node.outer]) used.add(name);
      }
      free.set(graph, [...used].filter((name) => name && !made.has(name)));
    }
    for (const graph of this.graphs.slice(0, 1)) {
      for (const node of graph.nodes) if (node.graphs.length) node.outer = this.outerOf(node, graphs, free);
    }
  }

  outerOf(node, graphs, free) {
    return node.graphs.flatMap((element) => free.get(graphs.get(element)) ?? []);
  }

  opset(element) {
    const version = this.bytes.kids(element).find((kid) => kid.step === "version");
    const domain = fieldText(this.bytes, element, "domain");
    const text = `${domain ? `${domain} ` : ""}${version === undefined ? "?" : textOf(this.bytes, version)}`;
    this.info.set("opset", this.info.has("opset") ? `${this.info.get("opset")}, ${text}` : text);
  }

  // Graphs inside are gathered with their own work list, so that nesting costs no recursion.
  graph(element, title) {
    const todo = [[element, title]];
    for (let at = 0; at < todo.length; at++) {
      const [from, name] = todo[at];
      const graph = new Graph(from, name || `function ${fieldText(this.bytes, from, "name")}`);
      this.graphs.push(graph);
      for (const kid of this.bytes.kids(from)) {
        if (kid.message === "NodeProto") for (const inner of this.node(graph, kid)) todo.push(inner);
        else if (kid.message === "TensorProto") this.initializer(graph, kid);
        else if (kid.message === "ValueInfoProto") this.value(graph, kid);
        else if (kid.message === "SparseTensorProto") this.sparse(graph, kid);
        else if (kid.message === null && from.message === "FunctionProto" && kid.field !== null) {
          if (kid.field.name === "input") graph.inputs.push(textIn(this.bytes, kid));
          if (kid.field.name === "output") graph.outputs.push(textIn(this.bytes, kid));
        }
      }
    }
  }

  node(graph, element) {
    const node = { element, op: "", domain: "", name: "", inputs: [], outputs: [], graphs: [], outer: [], scopes: "" };
    const inner = [];
    for (const kid of this.bytes.children(element)) {
      if (kid.message === "AttributeProto") {
        if (kid.payload > 8) for (const one of this.attribute(kid, node)) inner.push(one);
      } else if (kid.message === "StringStringEntryProto") {
        const isScopes = fieldText(this.bytes, kid, "key") === SCOPES;
        if (isScopes) node.scopes = fieldText(this.bytes, kid, "value", MOST_SCOPES);
      } else if (kid.field === null || !kid.field.isText) {
        continue;
      } else if (kid.field.name === "input") {
        node.inputs.push(textIn(this.bytes, kid));
      } else if (kid.field.name === "output") {
        node.outputs.push(textIn(this.bytes, kid));
      } else if (kid.field.name === "op_type") {
        node.op = textIn(this.bytes, kid);
      } else if (kid.field.name === "name") {
        node.name = textIn(this.bytes, kid);
      } else if (kid.field.name === "domain") {
        node.domain = textIn(this.bytes, kid);
      }
    }
    graph.nodes.push(node);
    return inner;
  }

  attribute(element, node) {
    const inner = [], owner = `${node.op} ${node.name || node.outputs[0] || ""}`;
    let title = null;
    for (const kid of this.bytes.children(element)) {
      if (kid.message === "TensorProto") {
        this.tensor(kid, owner.trim(), node.op);
      } else if (kid.message === "GraphProto") {
        title ??= `${owner}: ${fieldText(this.bytes, element, "name")}`;
        node.graphs.push(kid);
        inner.push([kid, title]);
      }
    }
    return inner;
  }

  initializer(graph, element) {
    const tensor = this.tensor(element);
    graph.weights.set(tensor.name, tensor);
  }

  sparse(graph, element) {
    for (const kid of this.bytes.children(element)) {
      if (kid.message === "TensorProto") this.initializer(graph, kid);
    }
  }

  value(graph, element) {
    const name = fieldText(this.bytes, element, "name");
    if (!graph.values.has(name)) graph.values.set(name, element);
    if (element.field.name === "input") graph.inputs.push(name);
    if (element.field.name === "output") graph.outputs.push(name);
  }

  tensor(element, title = "", op = "") {
    const { bytes } = this, [code, dims] = typeAndDims(bytes, element);
    const tensor = { element, name: title, code, dims, size: 0, file: "", offset: element.start, op, statistics: null };
    const external = new Map();
    let data = 0, isExternal = false;
    for (const kid of bytes.children(element)) {
      if (kid.field === null) continue;
      const { name } = kid.field;
      if (name === "name" && !title) tensor.name = textIn(bytes, kid);
      else if (name === "data_location") isExternal = kid.wire === VARINT && intIn(bytes, kid) === 1;
      else if (name.endsWith("_data")) data += kid.payload;
      if (name === "raw_data") tensor.offset = kid.body;
      if (name === "external_data") external.set(fieldText(bytes, kid, "key"), fieldText(bytes, kid, "value"));
    }
    const bits = bytes.dtypes[code] ? bytes.dtypes[code][1] : 0;
    tensor.size = data;
    if (isExternal) {
      tensor.file = external.get("location") ?? "?";
      tensor.offset = Number(external.get("offset") ?? 0);
      const needed = Math.ceil(dims.reduce((product, size) => product * Math.max(size, 0), 1) * bits / 8);
      tensor.size = Number(external.get("length") ?? needed) || 0;
    }
    tensor.statistics = statisticsOf(this.facts.histograms[element.start]);
    this.tensors.push(tensor);
    return tensor;
  }
}

class Graph {
  constructor(element, title) {
    this.element = element;
    this.title = title;
    this.nodes = [];
    this.inputs = [];
    this.outputs = [];
    this.values = new Map();
    this.weights = new Map();
    this.modules = null;
  }

  // The inputs that a caller gives: old files list weights among the inputs.
  get fed() {
    return this.inputs.filter((name) => !this.weights.has(name));
  }
}

function statisticsOf(row) {
  if (!row) return null;
  const [low, high, mean, std, zeros, odd, seen, total, counts] = row;
  return { low, high, mean, std, zeros, odd, seen, total, counts };
}
