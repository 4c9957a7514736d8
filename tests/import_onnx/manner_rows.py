"""What people do with messages. Each row is (name, code that sets `result`), run with protobuf's classes and ours."""

from __future__ import annotations

MODEL = """
m = onnx.ModelProto()
n = m.graph.node.add(op_type="Relu", input=["a"], output=["b"])
t = onnx.TensorProto(name="t", dims=[2], data_type=1, float_data=[1.0, 2.0])
"""

READING = [
    ("defaults", "m = onnx.ModelProto(); "
     "result = [m.ir_version, m.producer_name, m.graph.name, len(m.graph.node), m]"),
    ("defaults-tensor", "t = TensorProto(); "
     "result = [t.raw_data, t.data_type, t.data_location, list(t.dims), t.segment.begin]"),
    ("reading-adds-nothing", "m = onnx.ModelProto(); m.graph.node; m.graph.input; result = [m.HasField('graph'), m]"),
    ("identity", "m = onnx.ModelProto(); result = [m.graph is m.graph, m.graph.node == m.graph.node]"),
    ("has", MODEL + "result = [m.HasField('graph'), m.HasField('ir_version'), t.HasField('name'), "
     "t.HasField('raw_data')]"),
    ("has-repeated", MODEL + "result = m.graph.HasField('node')"),
    ("has-unknown", MODEL + "result = m.HasField('nonsense')"),
    ("which", "t = onnx.TypeProto(); a = t.WhichOneof('value'); t.tensor_type.elem_type = 1; "
     "result = [a, t.WhichOneof('value')]"),
    ("which-unknown", "result = onnx.TypeProto().WhichOneof('nonsense')"),
    ("fields", MODEL + "result = [(f.name, str(v)) for f, v in t.ListFields()]"),
    ("unknown-attribute", "result = onnx.NodeProto().nonsense"),
    ("text", MODEL + "result = [str(m), str(t), repr(t), repr(m), repr(m.graph)]"),
    ("text-of-attributes", "result = str(helper.make_node('A', ['x'], [], f=0.1, i=-3, s=b'\\x00\\xff\"', "
     "fs=[1e30, 3.0]))"),
    ("initialized", MODEL + "result = [m.IsInitialized(), t.ByteSize(), "
     "len(m.SerializeToString(deterministic=True))]"),
    ("not-hashable", "result = hash(onnx.NodeProto())"),
    ("truth", "result = [bool(onnx.ModelProto()), bool(onnx.ModelProto().graph)]"),
    ("array-of-dims", MODEL + "result = [np.array(t.dims), np.prod(t.dims), tuple(t.dims), np.array(t.float_data)]"),
]  # fmt: skip

WRITING = [
    ("spring", "m = onnx.ModelProto(); m.graph.name = 'g'; result = m"),
    ("spring-deep", "v = onnx.ValueInfoProto(); v.type.tensor_type.shape.dim.add().dim_value = 3; result = v"),
    ("spring-list", "m = onnx.ModelProto(); m.graph.node.extend([]); a = m.HasField('graph'); "
     "m.graph.node.add(); result = [a, m]"),
    ("spring-late", "v = onnx.ValueInfoProto(); s = v.type.tensor_type.shape; s.dim.add().dim_param = 'N'; "
     "result = v"),
    ("set-in-parent", "v = onnx.ValueInfoProto(); v.type.tensor_type.shape.SetInParent(); result = v"),
    ("oneof", "d = onnx.TensorShapeProto.Dimension(dim_value=3); d.dim_param = 'N'; "
     "result = [d, d.HasField('dim_value')]"),
    ("oneof-message", "t = onnx.TypeProto(); t.tensor_type.elem_type = 1; "
     "t.sequence_type.elem_type.tensor_type.elem_type = 2; result = t"),
    ("explicit-default", "n = onnx.NodeProto(); n.name = ''; a = helper.make_attribute('k', 0); result = [n, a]"),
    ("assign-message", "m = onnx.ModelProto(); m.graph = onnx.GraphProto(); result = 0"),
    ("assign-list", "t = TensorProto(); t.dims = [1]; result = 0"),
    ("assign-unknown", "t = TensorProto(); t.nonsense = 1; result = 0"),
    ("assign-slice", "t = TensorProto(dims=[1, 2, 3]); t.dims[:] = [4, 5]; t.dims[0] = 9; result = t"),
    ("augmented", "t = TensorProto(dims=[1]); t.dims.append(2); t.dims.extend((3, 4)); t.dims.insert(0, 7); "
     "result = t"),
    ("delete", "t = TensorProto(dims=[1, 2, 3, 4]); del t.dims[0]; del t.dims[1:]; result = t"),
    ("pop", "t = TensorProto(dims=[1, 2, 3]); a = t.dims.pop(); t.dims.remove(1); t.dims.sort(reverse=True); "
     "result = [a, t]"),
    ("pop-message", MODEL + "m.graph.node.add(name='z'); a = m.graph.node.pop(0); result = [a, m]"),
    ("remove-message", MODEL + "c = onnx.NodeProto(); c.CopyFrom(n); m.graph.node.remove(c); result = m"),
    ("remove-missing", MODEL + "m.graph.node.remove(onnx.NodeProto(name='q')); result = 0"),
    ("insert-message", MODEL + "m.graph.node.insert(0, onnx.NodeProto(name='first')); result = m"),
    ("append-copies", MODEL + "g = onnx.GraphProto(); g.node.append(n); n.name = 'later'; result = [g, m]"),
    ("sort-messages", "g = onnx.GraphProto(); [g.node.add(name=x) for x in 'bca']; "
     "g.node.sort(key=lambda n: n.name); result = g"),
    ("reverse", "g = onnx.GraphProto(); [g.node.add(name=x) for x in 'abc']; g.node.reverse(); result = g"),
    ("replace-nodes", MODEL + "new = [onnx.NodeProto(name=x) for x in 'ab']; del m.graph.node[:]; "
     "m.graph.node.extend(new); result = m"),
    ("item-assignment", MODEL + "m.graph.node[0] = onnx.NodeProto(); result = 0"),
    ("item-copy", MODEL + "m.graph.node[0].CopyFrom(onnx.NodeProto(name='c')); result = m"),
    ("slice-of-messages", MODEL + "m.graph.node.add(name='z'); "
     "result = [m.graph.node[-1], m.graph.node[:1], len(m.graph.node)]"),
    ("clear-field", MODEL + "m.ClearField('graph'); t.ClearField('dims'); result = [m, t, n]"),
    ("clear-unknown", MODEL + "m.ClearField('nonsense'); result = 0"),
    ("clear", MODEL + "t.Clear(); result = [t, t.name]"),
    ("copy-from", MODEL + "o = TensorProto(); o.CopyFrom(t); t.name = 'z'; result = [o, t]"),
    ("copy-from-other", MODEL + "o = TensorProto(); o.CopyFrom(m); result = 0"),
    ("copy-from-empty", "m = onnx.ModelProto(); m.graph.CopyFrom(onnx.GraphProto()); result = m"),
    ("merge-from", MODEL + "o = TensorProto(name='o', dims=[7]); o.MergeFrom(t); result = o"),
    ("parse", MODEL + "o = TensorProto(); k = o.ParseFromString(t.SerializeToString()); "
     "result = [o, k == t.ByteSize()]"),
    ("parse-merge", MODEL + "o = TensorProto(dims=[9]); o.MergeFromString(t.SerializeToString()); result = o"),
    ("parse-text", "TensorProto().ParseFromString('text'); result = 0"),
    ("from-string", MODEL + "result = [TensorProto.FromString(t.SerializeToString()), "
     "TensorProto.FromString(bytearray(b''))]"),
    ("equal", MODEL + "o = TensorProto(); o.CopyFrom(t); "
     "result = [o == t, o != t, o == 3, t.dims == [2], n == m.graph.node[0]]"),
    ("deepcopy", MODEL + "import copy; c = copy.deepcopy(m); c.graph.name = 'c'; result = [c, m]"),
    ("pickle", MODEL + "import pickle; result = pickle.loads(pickle.dumps(t.SerializeToString()))"),
    ("constructor", "result = onnx.NodeProto(op_type='A', input=('a', 'b'), "
     "attribute=[helper.make_attribute('k', 1)], name=None)"),
    ("constructor-dicts", "result = onnx.ValueInfoProto(name='v', type={'tensor_type': {'elem_type': 1}})"),
    ("constructor-unknown", "result = onnx.NodeProto(nonsense=1)"),
    ("constructor-position", "result = onnx.NodeProto('A')"),
    ("add-unknown", "onnx.GraphProto().node.add(nonsense=1); result = 0"),
]  # fmt: skip

TYPES = [
    ("str-for-int", "t = TensorProto(); t.data_type = '1'; result = 0"),
    ("float-for-int", "t = TensorProto(); t.data_type = 1.5; result = 0"),
    ("numpy-for-int", "t = TensorProto(); t.data_type = np.int64(3); t.dims.append(np.int32(4)); result = t"),
    ("bool-for-int", "t = TensorProto(); t.data_type = True; result = t"),
    ("large-for-int", "t = TensorProto(); t.data_type = 2**31; result = 0"),
    ("negative-for-uint", "t = TensorProto(); t.uint64_data.append(-1); result = 0"),
    ("int-for-str", "n = onnx.NodeProto(); n.name = 3; result = 0"),
    ("none-for-str", "n = onnx.NodeProto(); n.name = None; result = 0"),
    ("bytes-for-str", "n = onnx.NodeProto(); n.name = b'ab'; result = n"),
    ("no-utf8-for-str", "n = onnx.NodeProto(); n.name = b'\\xff'; result = 0"),
    ("str-for-bytes", "t = TensorProto(); t.raw_data = 'text'; result = 0"),
    ("array-for-bytes", "t = TensorProto(); t.raw_data = bytearray(b'text'); result = 0"),
    ("int-for-float", "a = onnx.AttributeProto(); a.f = 3; a.floats.extend([1, np.float64(0.1)]); "
     "result = [a, a.f, a.floats[1]]"),
    ("str-for-float", "a = onnx.AttributeProto(); a.f = '3'; result = 0"),
    ("huge-for-float", "a = onnx.AttributeProto(); a.f = 1e300; result = a"),
    ("enum", "a = onnx.AttributeProto(); a.type = onnx.AttributeProto.INTS; a.type += 0; result = [a, a.type]"),
    ("enum-none", "a = onnx.AttributeProto(); a.type = 77; result = 0"),
    ("append-other", "g = onnx.GraphProto(); g.node.append(onnx.GraphProto()); result = 0"),
    ("append-none", "g = onnx.GraphProto(); g.node.append(None); result = 0"),
    ("extend-half", "t = TensorProto(); result = 0\ntry: t.dims.extend([1, 'a'])\nexcept TypeError: result = 1"),
    ("str-in-dims", "t = TensorProto(); t.dims.append('1'); result = 0"),
]  # fmt: skip

DESCRIPTORS = [
    ("fields", "result = [(f.name, f.number, f.type, f.cpp_type, "
     "f.is_repeated) for f in onnx.NodeProto.DESCRIPTOR.fields]"),
    ("all", "result = [[(f.name, f.number, f.type, f.is_packed, f.has_presence, "
     "f.full_name) for f in getattr(onnx, k)"
     ".DESCRIPTOR.fields] for k in dir(onnx) if k.endswith('Proto')]"),
    ("names", "d = onnx.TypeProto.Tensor.DESCRIPTOR; "
     "result = [d.name, d.full_name, d.containing_type.name, d.file.package]"),
    ("by-name", "f = TensorProto.DESCRIPTOR.fields_by_name['raw_data']; "
     "result = [f.number, f.default_value, f.message_type]"),
    ("by-number", "result = TensorProto.DESCRIPTOR.fields_by_number[9].name"),
    ("message-type", "result = onnx.ModelProto.DESCRIPTOR.fields_by_name['graph'].message_type.full_name"),
    ("oneofs", "result = [(o.name, [f.name for f in o.fields]) for o in onnx.TypeProto.DESCRIPTOR.oneofs]"),
    ("nested", "result = sorted(onnx.TypeProto.DESCRIPTOR.nested_types_by_name)"),
    ("enums", "result = [(e.name, [(v.name, "
     "v.number) for v in e.values]) for e in TensorProto.DESCRIPTOR.enum_types]"),
    ("enum-name", "result = [TensorProto.DataType.Name(1), TensorProto.DataType.Value('FLOAT'), TensorProto.FLOAT]"),
    ("enum-items", "result = [TensorProto.DataType.items(), TensorProto.DataType.keys(), "
     "TensorProto.DataType.values()]"),
    ("enum-no-name", "result = TensorProto.DataType.Name(99)"),
    ("enum-no-value", "result = TensorProto.DataType.Value('NONSENSE')"),
    ("enum-in-message", "result = onnx.AttributeProto.AttributeType.Name(onnx.AttributeProto.GRAPH)"),
    ("constants", "result = [onnx.IR_VERSION, onnx.STABLE, onnx.EXPERIMENTAL, "
     "onnx.Version.IR_VERSION_2019_3_18, onnx.ONNX_ML]"),
    ("numbers", "result = [onnx.NodeProto.OP_TYPE_FIELD_NUMBER, TensorProto.RAW_DATA_FIELD_NUMBER]"),
]  # fmt: skip

ROWS = [
    *[(f"reading-{name}", code) for name, code in READING],
    *[(f"writing-{name}", code) for name, code in WRITING],
    *[(f"types-{name}", code) for name, code in TYPES],
    *[(f"descriptors-{name}", code) for name, code in DESCRIPTORS],
]
