"""Calls of onnx's public functions, as people write them. Each row is (name, code that sets `result`)."""

from __future__ import annotations

GRAPH = """
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
w = onnx.numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "w")
nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="mm"), helper.make_node("Relu", ["h"], ["y"])]
graph = helper.make_graph(nodes, "g", [x], [y], [w])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="me")
"""
LARGE = GRAPH + "model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones((3, 2000), 'f4'), 'w'))\n"
FUNCTION = GRAPH + (
    "f = helper.make_function('my', 'F', ['a'], ['b'], [helper.make_node('Relu', ['a'], ['b'])], "
    "[helper.make_opsetid('', 17)])\n"
)

HELPER = [
    ("node", "result = helper.make_node('Conv', ['x', 'w'], ['y'], 'n', domain='', pads=[1, 1], auto_pad='NOTSET')"),
    ("node-none", "result = helper.make_node('Relu', ['x'], ['y'], alpha=None)"),
    ("node-overload", "result = helper.make_node('F', ['x'], ['y'], domain='my', overload='o', doc_string='d')"),
    ("graph", GRAPH + "result = graph"),
    ("model", GRAPH + "result = model"),
    ("model-default", GRAPH + "result = helper.make_model(graph)"),
    ("model-gen", GRAPH + "result = helper.make_model_gen_version(graph, opset_imports=[helper.make_opsetid('', "
     "12)])"),
    ("model-bad-field", GRAPH + "result = helper.make_model(graph, nonsense=1)"),
    ("copies", GRAPH + "nodes[0].name = 'changed'; graph.name = 'other'; result = model"),
    ("function", FUNCTION + "result = helper.make_model(graph, functions=[f])"),
    ("operatorsetid", "result = helper.make_operatorsetid('ai.onnx.ml', 3)"),
    ("min-ir", "result = helper.find_min_ir_version_for([helper.make_opsetid('', 20)])"),
    ("min-ir-unknown", "result = helper.find_min_ir_version_for([helper.make_opsetid('my', 1)])"),
    ("min-ir-ignored", "result = helper.find_min_ir_version_for([helper.make_opsetid('my', 1)], "
     "ignore_unknown=True)"),
    ("tables", "result = [helper.VERSION_TABLE, sorted(helper.OP_SET_ID_VERSION_MAP.items())]"),
    ("tensor-f32", "result = helper.make_tensor('t', TensorProto.FLOAT, [2, 2], [[1, 2], [3, 4]])"),
    ("tensor-i64", "result = helper.make_tensor('t', TensorProto.INT64, (3,), np.array([1, 2, 3]))"),
    ("tensor-text", "result = helper.make_tensor('t', TensorProto.STRING, [2], ['a', b'b'])"),
    ("tensor-raw", "result = helper.make_tensor('t', TensorProto.INT32, [2], np.array([1, 2], 'i4').tobytes(), "
     "raw=True)"),
    ("tensor-raw-array", "result = helper.make_tensor('t', TensorProto.INT4, [3], np.array([1, 2, 3], 'i1'), "
     "raw=True)"),
    ("tensor-raw-type", "result = helper.make_tensor('t', TensorProto.FLOAT, [1], [1.0], raw=True)"),
    ("tensor-raw-text", "result = helper.make_tensor('t', TensorProto.STRING, [1], b'a', raw=True)"),
    ("tensor-raw-size", "result = helper.make_tensor('t', TensorProto.FLOAT, [2], b'1234', raw=True)"),
    ("tensor-count", "result = helper.make_tensor('t', TensorProto.FLOAT, [3], [1, 2])"),
    ("tensor-copies", "a = np.ones(2, 'f4'); result = helper.make_tensor('t', 1, [2], a, raw=True); a[0] = 5"),
    ("sparse", GRAPH + "i = helper.make_tensor('i', 7, [1], [2]); result = helper.make_sparse_tensor(w, i, [3, 2])"),
    ("sequence", GRAPH + "result = helper.make_sequence('s', onnx.SequenceProto.TENSOR, [w, w])"),
    ("sequence-type", GRAPH + "result = helper.make_sequence('s', 99, [w])"),
    ("map", GRAPH + "result = helper.make_map('m', 7, [1], helper.make_sequence('s', onnx.SequenceProto.TENSOR, "
     "[w]))"),
    ("optional", GRAPH + "result = helper.make_optional('o', onnx.OptionalProto.TENSOR, w)"),
    ("attribute-int", "result = [helper.make_attribute('k', v) for v in (1, 1.5, 'a', b'b', [1, 2], [1.0, 2], "
     "['a', b'b'])]"),
    ("attribute-graph", GRAPH + "result = [helper.make_attribute('k', v) for v in (graph, [graph], w, [w], x.type)]"),
    ("attribute-numpy", "result = helper.make_attribute('k', np.array([1, 2])), helper.make_attribute('k', "
     "np.float32(2))"),
    ("attribute-typed", "result = helper.make_attribute('k', [], attr_type=onnx.AttributeProto.INTS)"),
    ("attribute-empty", "result = helper.make_attribute('k', [])"),
    ("attribute-mixed", "result = helper.make_attribute('k', [1, 'a'])"),
    ("attribute-object", "result = helper.make_attribute('k', object())"),
    ("attribute-contradicts", "result = helper.make_attribute('k', 1.0, attr_type=onnx.AttributeProto.STRING)"),
    ("attribute-ref", "result = helper.make_attribute_ref('k', onnx.AttributeProto.INT, 'd', ref_attr_name='outer')"),
    ("attribute-value", GRAPH + "result = [helper.get_attribute_value(helper.make_attribute('k', "
     "v)) for v in (1, 'a', w)]"),
    ("attribute-of-node", "n = helper.make_node('A', [], [], k=3); result = helper.get_node_attr_value(n, 'k')"),
    ("attribute-of-node-none", "n = helper.make_node('A', [], [], k=3); result = helper.get_node_attr_value(n, 'z')"),
    ("value-info", "result = helper.make_tensor_value_info('v', 1, [1, 'N', None], 'doc', ['a', 'b', 'c'])"),
    ("value-info-unknown", "result = helper.make_tensor_value_info('v', 1, None)"),
    ("value-info-bad", "result = helper.make_tensor_value_info('v', 1, [1.5])"),
    ("value-info-empty", "result = helper.make_empty_tensor_value_info('v')"),
    ("value-info-sparse", "result = helper.make_sparse_tensor_value_info('v', 1, [2, 'N'])"),
    ("value-info-sequence", "result = helper.make_tensor_sequence_value_info('v', 1, [2])"),
    ("types", "t = helper.make_tensor_type_proto(1, [2]); result = [helper.make_sequence_type_proto(t), "
     "helper.make_optional_type_proto(t), helper.make_map_type_proto(7, t), helper.make_value_info('v', t)]"),
    ("training", GRAPH + "result = helper.make_training_info(graph, [('a', 'b')], None, None)"),
    ("metadata", GRAPH + "helper.set_model_props(model, {'a': 'b'}); "
     "helper.set_metadata_props(model, {'c': 'd'}); result = model"),
    ("strip", "n = helper.make_node('A', [], [], doc_string='d'); helper.strip_doc_string(n); result = n"),
    ("strip-type", "result = helper.strip_doc_string('text')"),
    ("printed", GRAPH + "result = [helper.printable_graph(graph), helper.printable_node(nodes[0]), "
     "helper.printable_value_info(x), helper.printable_tensor_proto(w), helper.printable_type(x.type), "
     "helper.printable_dim(x.type.tensor_type.shape.dim[0]), "
     "helper.printable_attribute(helper.make_attribute('k', 1))]"),
    ("dtypes", "result = [(code, helper.tensor_dtype_to_np_dtype(code), helper.tensor_dtype_to_string(code), "
     "helper.tensor_dtype_to_field(code), helper.tensor_dtype_to_storage_tensor_dtype(code)) "
     "for code in sorted(helper.get_all_tensor_dtypes())]"),
    ("dtype-of-numpy", "result = [helper.np_dtype_to_tensor_dtype(np.dtype(n)) for n in ('f4', 'i8', 'O', '?', "
     "'c8')]"),
    ("dtype-of-numpy-unknown", "result = helper.np_dtype_to_tensor_dtype(np.dtype('M8[s]'))"),
]  # fmt: skip

NUMPY_HELPER = [
    ("array", "result = onnx.numpy_helper.from_array(np.arange(6, dtype='i2').reshape(2, 3), 'a')"),
    ("array-big-endian", "result = onnx.numpy_helper.from_array(np.arange(3, dtype='>f4'))"),
    ("array-strided", "result = onnx.numpy_helper.from_array(np.arange(6.0)[::2])"),
    ("array-copies", "a = np.ones(3); result = onnx.numpy_helper.from_array(a); a[0] = 7"),
    ("array-text", "result = onnx.numpy_helper.from_array(np.array(['a', b'b', 'c'], object).reshape(3, 1))"),
    ("array-objects", "result = onnx.numpy_helper.from_array(np.array([1, 'a'], object))"),
    ("array-dates", "result = onnx.numpy_helper.from_array(np.array(['2020-01-01'], 'M8[D]'))"),
    ("array-ml", "import ml_dtypes; result = [onnx.numpy_helper.from_array(np.array([1, 2, 3]).astype(t)) for t in "
     "(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.float4_e2m1fn)]"),
    ("back-raw", "t = onnx.numpy_helper.from_array(np.arange(4.0)); result = onnx.numpy_helper.to_array(t)"),
    ("back-all", "result = [onnx.numpy_helper.to_array(helper.make_tensor('t', code, [3], [1, 0, 1])) "
     "for code in sorted(helper.get_all_tensor_dtypes()) if code != 8]"),
    ("back-raw-ml", "result = [onnx.numpy_helper.to_array(TensorProto(data_type=c, dims=[2], "
     "raw_data=b'\\x21\\x43'[:n])) "
     "for c, n in ((17, 2), (20, 2), (22, 1), (21, 1), (23, 1), (24, 2), (25, 1), (27, 2))]"),
    ("back-text", "result = onnx.numpy_helper.to_array(helper.make_tensor('t', TensorProto.STRING, [2], ['a', "
     "'b']))"),
    ("back-undefined", "result = onnx.numpy_helper.to_array(TensorProto(dims=[1]))"),
    ("back-size", "result = onnx.numpy_helper.to_array(TensorProto(dims=[2], data_type=1, raw_data=b'1234'))"),
    ("back-segment", "t = TensorProto(data_type=1); t.segment.begin = 1; result = onnx.numpy_helper.to_array(t)"),
    ("list", "s = onnx.numpy_helper.from_list([np.ones(1), np.zeros(2)], 's'); "
     "result = [s, onnx.numpy_helper.to_list(s)]"),
    ("list-nested", "result = onnx.numpy_helper.from_list([[np.ones(1)], [np.zeros(2)]])"),
    ("list-mixed", "result = onnx.numpy_helper.from_list([np.ones(1), [1]])"),
    ("dict", "m = onnx.numpy_helper.from_dict({1: np.ones(1), 2: np.ones(2)}, 'm'); "
     "result = [m, onnx.numpy_helper.to_dict(m)]"),
    ("dict-text", "result = onnx.numpy_helper.from_dict({'a': 1.0})"),
    ("dict-empty", "result = onnx.numpy_helper.from_dict({})"),
    ("dict-float-keys", "result = onnx.numpy_helper.from_dict({1.5: 1})"),
    ("optional", "o = onnx.numpy_helper.from_optional(np.ones(2)); result = [o, onnx.numpy_helper.to_optional(o)]"),
    ("optional-none", "result = onnx.numpy_helper.to_optional(onnx.numpy_helper.from_optional(None))"),
    ("optional-kind", "result = onnx.numpy_helper.from_optional(None, dtype=99)"),
    ("little", "result = onnx.numpy_helper.tobytes_little_endian(np.arange(3, dtype='>i4'))"),
    ("random", "result = onnx.numpy_helper.create_random_int((2, 3), np.int16, seed=3)"),
    ("saturate", "import ml_dtypes; result = [onnx.numpy_helper.saturate_cast(np.array([-1e9, 0.6, 1e9]), t) "
     "for t in (np.int8, np.uint8, ml_dtypes.int4, ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16)]"),
    ("e8m0", "result = [onnx.numpy_helper.to_float8e8m0(np.array([0.7, 3, 1e38, np.nan], 'f4'), s, m).view(np.uint8) "
     "for s in (True, False) for m in ('up', 'down', 'nearest')]"),
]  # fmt: skip

FILES = [
    ("save-load", GRAPH + "onnx.save(model, folder + '/m.onnx'); result = onnx.load(folder + '/m.onnx')"),
    ("save-bytes", GRAPH + "onnx.save(model.SerializeToString(), folder + '/m.onnx'); "
     "result = open(folder + '/m.onnx', 'rb').read()"),
    ("save-twice", GRAPH + "onnx.save(model, folder + '/m.onnx'); m = onnx.load(folder + '/m.onnx'); "
     "m.graph.name = 'q'; "
     "open(folder + '/m.onnx', 'wb').write(m.SerializeToString()); result = onnx.load(folder + '/m.onnx')"),
    ("stream", GRAPH + "import io; f = io.BytesIO(); onnx.save_model(model, f); "
     "result = onnx.load_model(io.BytesIO(f.getvalue()))"),
    ("string", GRAPH + "result = onnx.load_from_string(model.SerializeToString())"),
    ("string-type", "result = onnx.load_model_from_string('text')"),
    ("tensor", GRAPH + "onnx.save_tensor(w, folder + '/w.pb'); result = onnx.load_tensor(folder + '/w.pb')"),
    ("no-model", "open(folder + '/m.onnx', 'wb').write(b'\\xff\\xff'); "
     "result = 0\ntry: onnx.load(folder + '/m.onnx')\n"
     "except Exception as e: result = type(e).__name__"),
    ("json", GRAPH + "onnx.save(model, folder + '/m.json'); result = onnx.load(folder + '/m.json')"),
    ("json-text", LARGE + "onnx.save(model, folder + '/m.json'); result = open(folder + '/m.json').read()"),
    ("textproto", GRAPH + "onnx.save(model, folder + '/m.txtpb'); result = onnx.load(folder + '/m.txtpb')"),
    ("format-unknown", GRAPH + "onnx.save(model, folder + '/m.onnx', 'nonsense'); result = 0"),
    ("external", LARGE + "onnx.save_model(model, folder + '/m.onnx', save_as_external_data=True, location='m.data'); "
     "import os; result = [sorted(os.listdir(folder)), open(folder + '/m.onnx', 'rb').read(), "
     "os.path.getsize(folder + '/m.data'), onnx.load(folder + '/m.onnx')]"),
    ("external-unloaded", LARGE + "onnx.save_model(model, folder + '/m.onnx', save_as_external_data=True, "
     "location='d'); "
     "m = onnx.load(folder + '/m.onnx', load_external_data=False); "
     "result = [m, onnx.external_data_helper.uses_external_data("
     "m.graph.initializer[0])]; onnx.load_external_data_for_model(m, folder); result.append(m)"),
    ("external-each", LARGE + "onnx.save_model(model, folder + '/m.onnx', save_as_external_data=True, "
     "all_tensors_to_one_file=False); import os; result = sorted(os.listdir(folder))"),
    ("external-threshold", LARGE + "onnx.save_model(model, folder + '/m.onnx', save_as_external_data=True, "
     "location='d', "
     "size_threshold=10**6); import os; result = sorted(os.listdir(folder))"),
    ("external-outside", LARGE + "onnx.external_data_helper.set_external_data(model.graph.initializer[0], '../d'); "
     "onnx.save(model, folder + '/m.onnx'); result = 0"),
    ("external-absolute", LARGE + "onnx.convert_model_to_external_data(model, location='/tmp/d'); result = 0"),
    ("external-entries", LARGE + "t = model.graph.initializer[0]; h = onnx.external_data_helper; "
     "h.set_external_data(t, 'd', 4, 8, 'c', 'b'); i = h.ExternalDataInfo(t); "
     "h.remove_external_data_field(t, 'checksum'); "
     "result = [t, i.location, i.offset, i.length, i.checksum, i.basepath]"),
    ("external-no-data", "onnx.external_data_helper.set_external_data(TensorProto(), 'd'); result = 0"),
    ("external-missing", LARGE + "h = onnx.external_data_helper; t = model.graph.initializer[0]; "
     "h.set_external_data(t, 'd'); t.ClearField('raw_data'); h.load_external_data_for_tensor(t, folder); result = 0"),
    ("external-short", LARGE + "h = onnx.external_data_helper; t = model.graph.initializer[0]; "
     "open(folder + '/d', 'wb')"
     ".write(b'12'); h.set_external_data(t, 'd', 0, 99); t.ClearField('raw_data'); "
     "h.load_external_data_for_tensor(t, folder); result = 0"),
    ("external-link", LARGE + "import os; open(folder + '/secret', 'wb').write(b'12'); "
     "os.symlink(folder + '/secret', "
     "folder + '/d'); h = onnx.external_data_helper; t = model.graph.initializer[0]; h.set_external_data(t, 'd'); "
     "h.save_external_data(t, folder); result = 0"),
    ("external-back", LARGE + "onnx.convert_model_to_external_data(model, location='d'); "
     "onnx.external_data_helper.convert_model_from_external_data(model); result = model"),
    ("container", "t = onnx.model_container.make_large_tensor_proto('#w', 'w', 1, (2, 2)); "
     "g = helper.make_graph([], 'g', "
     "[], [], [t]); c = onnx.model_container.make_large_model(g, {'#w': np.eye(2, dtype='f4')}); "
     "c.save(folder + '/m.onnx', True); d = onnx.model_container.ModelContainer(); d.load(folder + '/m.onnx'); "
     "result = [t, c['#w'], sorted(d.large_initializers), d['#t0'], onnx.load(folder + '/m.onnx').graph]"),
    ("container-key", "onnx.model_container.ModelContainer().set_large_initializers({'w': np.ones(1)}); result = 0"),
    ("container-empty", "result = onnx.model_container.ModelContainer().model_proto"),
]  # fmt: skip

CHECKS = [
    ("model", GRAPH + "onnx.checker.check_model(model, full_check=True); result = 0"),
    ("model-path", GRAPH + "onnx.save(model, folder + '/m.onnx'); onnx.checker.check_model(folder + '/m.onnx'); "
     "result = 0"),
    ("model-bytes", GRAPH + "onnx.checker.check_model(model.SerializeToString()); result = 0"),
    ("model-broken", GRAPH + "model.graph.node[0].op_type = 'Nonsense'; onnx.checker.check_model(model); result = 0"),
    ("model-types", GRAPH + "model.graph.input[0].type.tensor_type.elem_type = 9; "
     "onnx.checker.check_model(model, True); result = 0"),
    ("graph-type", GRAPH + "onnx.checker.check_graph(model); result = 0"),
    ("parts", GRAPH + "onnx.checker.check_node(nodes[0]); onnx.checker.check_tensor(w); "
     "onnx.checker.check_value_info(x); "
     "onnx.checker.check_graph(graph); onnx.checker.check_attribute(helper.make_attribute('k', 1)); result = 0"),
    ("context", "c = onnx.checker.C.CheckerContext(); c.ir_version = 8; c.opset_imports = {'': 1}; "
     "onnx.checker.check_node(helper.make_node('Gelu', ['x'], ['y']), c); result = 0"),
    ("function", FUNCTION + "onnx.checker.check_function(f); result = 0"),
    ("inferred", GRAPH + "del model.graph.value_info[:]; "
     "result = onnx.shape_inference.infer_shapes(model).graph.value_info"),
    ("inferred-leaves", GRAPH + "before = model.SerializeToString(); "
     "onnx.shape_inference.infer_shapes(model).graph.name = 'z'; "
     "result = before == model.SerializeToString()"),
    ("inferred-strict", GRAPH + "model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 7; "
     "result = onnx.shape_inference.infer_shapes(model, strict_mode=True)"),
    ("inferred-path", GRAPH + "onnx.save(model, folder + '/m.onnx'); onnx.shape_inference.infer_shapes_path("
     "folder + '/m.onnx', folder + '/n.onnx'); result = onnx.load(folder + '/n.onnx').graph.value_info"),
    ("inferred-of-path", "result = onnx.shape_inference.infer_shapes('m.onnx')"),
    ("printer", GRAPH + "result = onnx.printer.to_text(model)"),
]  # fmt: skip

ROWS = [
    *[(f"helper-{name}", code) for name, code in HELPER],
    *[(f"numpy_helper-{name}", code) for name, code in NUMPY_HELPER],
    *[(f"files-{name}", code) for name, code in FILES],
    *[(f"checks-{name}", code) for name, code in CHECKS],
]
