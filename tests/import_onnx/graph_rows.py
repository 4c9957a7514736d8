"""Calls of onnx's functions on whole graphs: merging, parsing, inlining, converting, schemas: (name, code)."""

from __future__ import annotations

from tests.import_onnx.function_rows import GRAPH

OTHER = GRAPH + (
    "nodes[1].name = graph.node[1].name = model.graph.node[1].name = 'relu'\n"
    "y2 = helper.make_tensor_value_info('y', TensorProto.FLOAT, ['N', 2])\n"
    "z2 = helper.make_tensor_value_info('z', TensorProto.FLOAT, ['N', 2])\n"
    "second = helper.make_graph([helper.make_node('Neg', ['y'], ['z'], name='neg')], 'h', [y2], [z2])\n"
    "other = helper.make_model(second, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)\n"
    "compose = onnx.compose\n"
    # onnx writes the opset of both models, though they are the same
    "def whole(m): return [m.graph, m.ir_version, m.producer_name, m.producer_version, m.domain, m.model_version, "
    "m.doc_string, sorted({(i.domain, i.version) for i in m.opset_import})]\n"
)
DIMS = GRAPH + "dims = module('tools.update_model_dims').update_inputs_outputs_dims\n"
STATIC = OTHER + "for g in (graph, model.graph): g.output[0].type.tensor_type.shape.dim[0].dim_value = 4\n"
CALLING = """
model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["" : 17, "l" : 1]>
g (float[N] x) => (float[N] y) { h = l.F<k: float = 2.0>(x) y = l.G(h) }
<opset_import: ["" : 17], domain: "l"> F <k>(a) => (b) { c = Constant<value_float: float = @k>() b = Mul(a, c) }
<opset_import: ["" : 17], domain: "l"> G (a) => (b) { t = Abs(a) b = Sqrt(t) }''')
"""
SCHEMA = (
    "def shown(s): return [s.name, s.domain, s.since_version, s.min_input, s.max_input, s.min_output, s.max_output, "
    "[(i.name, i.type_str, i.option.name, i.is_homogeneous) for i in (*s.inputs, *s.outputs)], "
    "sorted((a.name, a.type.name, a.required) for a in s.attributes.values()), "
    "[(c.type_param_str, sorted(c.allowed_type_strs)) for c in s.type_constraints], s.deprecated, s.has_function]\n"
)

COMPOSE = [
    ("merge", OTHER + "result = whole(compose.merge_models(model, other, io_map=[('y', 'y')]))"),
    ("merge-prefix", OTHER + "result = whole(compose.merge_models(model, other, [('y', 'y')], prefix1='a/', "
     "prefix2='b/'))"),
    ("merge-named", OTHER + "result = whole(compose.merge_models(model, other, [('y', 'y')], name='n', "
     "doc_string='d', producer_name='p', producer_version='1', domain='q', model_version=3))"),
    ("merge-outputs", OTHER + "result = whole(compose.merge_models(model, other, [('y', 'y')], outputs=['z']))"),
    ("merge-unknown", OTHER + "result = whole(compose.merge_models(model, other, [('nonsense', 'y')]))"),
    ("merge-clash", OTHER + "result = whole(compose.merge_models(model, model, [('y', 'x')]))"),
    ("merge-ir", OTHER + "other.ir_version = 9; result = whole(compose.merge_models(model, other, [('y', 'y')]))"),
    ("merge-opset", OTHER + "other.opset_import[0].version = 18; "
     "result = whole(compose.merge_models(model, other, [('y', 'y')]))"),
    ("merge-type", OTHER + "result = whole(compose.merge_models(graph, other, [('y', 'y')]))"),
    ("merge-graphs", OTHER + "result = compose.merge_graphs(graph, second, [('y', 'y')])"),
    ("overlapping", OTHER + "result = [(kind, sorted(names)) for kind, names in "
     "compose.check_overlapping_names(graph, graph)]"),
    ("overlapping-mapped", OTHER + "result = compose.check_overlapping_names(graph, second, [('y', 'y')])"),
    ("prefix", OTHER + "result = compose.add_prefix(model, 'p/')"),
    ("prefix-some", OTHER + "result = compose.add_prefix(model, 'p/', rename_inputs=False, rename_nodes=False)"),
    ("prefix-graph", OTHER + "result = compose.add_prefix_graph(graph, 'p/')"),
    ("prefix-map", OTHER + "names = {}; compose.add_prefix_graph(graph, 'p/', name_map=names); "
     "result = sorted(names.items())"),
    ("prefix-in-place", OTHER + "compose.add_prefix(model, 'p/', inplace=True); result = model"),
    ("expand", STATIC + "result = [compose.expand_out_dim(model, at) for at in (0, 1, 2)]"),
    ("expand-graph", STATIC + "result = compose.expand_out_dim_graph(graph, 0)"),
    ("expand-symbol", OTHER + "result = compose.expand_out_dim(model, 0)"),
    ("expand-last", STATIC + "result = compose.expand_out_dim(model, -1)"),
]  # fmt: skip

PARSER = [
    ("model", "result = onnx.parser.parse_model('<ir_version: 7, opset_import: [\"\" : 10]> agraph (float[N, 128] X, "
     "float w = {1.5}) => (float[N] C) { T = MatMul(X, w) C = Softmax<axis = 1>(T) }')"),
    ("graph", "result = onnx.parser.parse_graph('g (int64[2, ?] x) => (y) <int64[2] w = {1, -2}> { y = Add(x, w) }')"),
    ("function", "result = onnx.parser.parse_function('<opset_import: [\"\" : 17], domain: \"d\"> "
     "f <a, b: int = 3>(x) => (y) { y = Relu(x) }')"),
    ("node", "result = onnx.parser.parse_node('y, z = d.F.over<a = 1, b = [1.0, 2], s = \"t\", g: graph = "
     "h (float x) => (float w) { w = Neg(x) }>(p, , q)')"),
    ("error", "result = 0\ntry: onnx.parser.parse_model('nonsense')\n"
     "except onnx.parser.ParseError as e: result = isinstance(e, Exception)"),
    ("error-node", "result = 0\ntry: onnx.parser.parse_node('y = (x)')\nexcept onnx.parser.ParseError: result = 1"),
    ("printed", CALLING + "result = onnx.printer.to_text(model)"),
    ("printed-parts", CALLING + "result = [onnx.printer.to_text(i) for i in (model.graph, model.graph.node[0], "
     "model.functions[0])]"),
]  # fmt: skip

INLINER = [
    ("local", CALLING + "m = onnx.inliner.inline_local_functions(model); "
     "result = [[n.op_type for n in m.graph.node], len(m.functions)]"),
    ("local-convert", CALLING + "model.functions[0].opset_import[0].version = 16; "
     "m = onnx.inliner.inline_local_functions(model, True); result = [[n.op_type for n in m.graph.node], "
     "len(m.functions)]"),
    ("selected", CALLING + "m = onnx.inliner.inline_selected_functions(model, [('l', 'G')]); "
     "result = [[n.op_type for n in m.graph.node], [f.name for f in m.functions]]"),
    ("selected-but", CALLING + "m = onnx.inliner.inline_selected_functions(model, [('l', 'G')], exclude=True); "
     "result = [[n.op_type for n in m.graph.node], [f.name for f in m.functions]]"),
]  # fmt: skip

TOOLS = [
    ("extractor", GRAPH + "e = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model)); "
     "g = e.extract_model(['h'], ['y']).graph; result = [list(g.node), list(g.input), list(g.output)]"),
    ("extractor-untyped", GRAPH + "e = onnx.utils.Extractor(model); result = e.extract_model(['h'], ['y'])"),
    ("extract", GRAPH + "onnx.save(model, folder + '/m.onnx'); onnx.utils.extract_model(folder + '/m.onnx', "
     "folder + '/n.onnx', ['x'], ['h']); g = onnx.load(folder + '/n.onnx').graph; "
     "result = [list(g.node), list(g.input), list(g.output), list(g.initializer)]"),
    ("extract-unknown", GRAPH + "onnx.save(model, folder + '/m.onnx'); onnx.utils.extract_model(folder + '/m.onnx', "
     "folder + '/n.onnx', ['x'], ['nonsense']); result = 0"),
    ("dims", DIMS + "result = dims("
     "model, {'x': [4, 3]}, {'y': [4, 2]})"),
    ("dims-named", DIMS + "result = dims(model, {'x': ['b', 3]}, "
     "{'y': ['b', 2]})"),
    ("dims-wrong", DIMS + "result = dims(model, {'x': [4, 5]}, "
     "{'y': [4, 2]})"),
    ("constants", GRAPH + "model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.zeros((3, 200), 'f4'), "
     "'w')); m = module('tools.replace_constants').replace_initializer_by_constant_of_shape(model); "
     "result = [n.op_type for n in m.graph.node if n.op_type != 'Constant']"),  # of the shape
    ("sparse-type", "result = helper.make_sparse_tensor_type_proto(1, [2, 'N'])"),
    ("sparse-check", GRAPH + "i = helper.make_tensor('i', 7, [1], [2]); v = helper.make_tensor('v', 1, [1], [1.0]); "
     "onnx.checker.check_sparse_tensor(helper.make_sparse_tensor(v, i, [6])); result = 0"),
    ("sparse-wrong", GRAPH + "i = helper.make_tensor('i', 7, [1], [9]); v = helper.make_tensor('v', 1, [1], [1.0]); "
     "onnx.checker.check_sparse_tensor(helper.make_sparse_tensor(v, i, [6])); result = 0"),
    ("error", "result = issubclass(onnx.checker.ValidationError, Exception)"),
    ("external-written", GRAPH + "h = onnx.external_data_helper; h.set_external_data(model.graph.initializer[0], 'd'); "
     "m = h.write_external_data_tensors(model, folder); result = [m, open(folder + '/d', 'rb').read()]"),
    ("node-outputs", "n = helper.make_node('Concat', ['a', 'b'], ['c'], axis=0); "
     "t = helper.make_tensor_type_proto(1, [2, 'N']); "
     "result = onnx.shape_inference.infer_node_outputs(onnx.defs.get_schema('Concat', 13), n, {'a': t, 'b': t})"),
    ("function-types", "f = onnx.parser.parse_function('<opset_import: [\"\" : 17], domain: \"d\"> "
     "f <a>(x) => (y) { y = Cast<to: int = @a>(x) }'); result = onnx.shape_inference.infer_function_output_types(f, "
     "[helper.make_tensor_type_proto(1, [2, 3])], [helper.make_attribute('a', 7)])"),
]  # fmt: skip

CONVERTER = [
    ("up", GRAPH + "result = onnx.version_converter.convert_version(model, 18).opset_import"),
    ("same", GRAPH + "m = onnx.version_converter.convert_version(model, 17); "
     "result = [n.op_type for n in m.graph.node]"),
    ("down", GRAPH + "m = onnx.version_converter.convert_version(model, 13); "
     "result = [n.op_type for n in m.graph.node]"),
    ("axes", "m = onnx.parser.parse_model('<ir_version: 8, opset_import: [\"\" : 13]> g (float[2, 3] x) "
     "=> (float[1, 2, 3] y) <int64[1] a = {0}> { y = Unsqueeze(x, a) }'); "
     "m = onnx.version_converter.convert_version(m, 12); "
     "result = [(n.op_type, [a.name for a in n.attribute]) for n in m.graph.node]"),
    ("too-new", GRAPH + "result = 0\ntry: onnx.version_converter.convert_version(model, 999)\n"
     "except RuntimeError: result = 1"),
    ("type", "result = onnx.version_converter.convert_version('m.onnx', 17)"),
]  # fmt: skip

DEFS = [
    ("has", "d = onnx.defs; result = [d.has('Relu'), d.has('Relu', ''), d.has('Nonsense'), d.has('Gelu', 19, ''), "
     "d.has('Gelu', 20, ''), d.has('LabelEncoder', 'ai.onnx.ml')]"),
    ("schemas", SCHEMA + "result = [shown(onnx.defs.get_schema(*key)) for key in (('Relu',), ('Conv', 10), "
     "('Clip', 12, ''), ('LabelEncoder', 4, 'ai.onnx.ml'), ('Loop', 21), ('LSTM', 7))]"),
    ("all", "result = sorted((s.domain, s.name, s.since_version) for s in onnx.defs.get_all_schemas())"),
    ("history", "result = sorted((s.domain, s.name, s.since_version) "
     "for s in onnx.defs.get_all_schemas_with_history())"),
    ("functions", "result = sorted(s.name for s in onnx.defs.get_function_ops())"),
    ("opset", "result = onnx.defs.onnx_opset_version()"),
    ("unknown", "result = 0\ntry: onnx.defs.get_schema('Nonsense')\nexcept onnx.defs.SchemaError: result = 1"),
    ("registered", "S = onnx.defs.OpSchema; s = S('Mine', 'my', 2, inputs=[S.FormalParameter('x', 'T')], "
     "outputs=[S.FormalParameter('y', 'T')], type_constraints=[('T', ['tensor(float)'], '')], "
     "attributes=[S.Attribute('k', S.AttrType.INT)])\nonnx.defs.register_schema(s); "
     "found = onnx.defs.get_schema('Mine', 'my'); result = [found.since_version, found.domain, "
     "[i.name for i in found.inputs]]; onnx.defs.deregister_schema('Mine', 2, 'my'); "
     "result.append(onnx.defs.has('Mine', 'my'))"),
    ("unregistered", "result = 0\ntry: onnx.defs.deregister_schema('Mine', 2, 'my')\n"
     "except onnx.defs.SchemaError: result = 1"),
]  # fmt: skip

ROWS = [
    *[(f"compose-{name}", code) for name, code in COMPOSE],
    *[(f"parser-{name}", code) for name, code in PARSER],
    *[(f"inliner-{name}", code) for name, code in INLINER],
    *[(f"tools-{name}", code) for name, code in TOOLS],
    *[(f"converter-{name}", code) for name, code in CONVERTER],
    *[(f"defs-{name}", code) for name, code in DEFS],
]
