"""Tensors as arrays: every data type, raw and typed storage, both ways, value by value against onnx.numpy_helper."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper as official
from onnx.helper import make_tensor, tensor_dtype_to_np_dtype

import proto_schema as ps
from proto_schema import numpy_helper
from proto_schema.tensors.dtypes import DTYPES, by_numpy_name, type_name

CODES = sorted(set(DTYPES) - {ps.TensorProto.STRING})
SHAPES = [(), (0,), (1,), (3,), (2, 5), (1, 4, 2)]


def to_official(tensor: ps.TensorProto) -> onnx.TensorProto:
    return onnx.TensorProto.FromString(tensor.SerializeToString())


def to_ours(tensor: onnx.TensorProto) -> ps.TensorProto:
    return ps.TensorProto.FromString(tensor.SerializeToString())


def same(ours: Any, theirs: Any) -> None:
    """Equal values, NaN and signed zero included; ours has the documented dtype."""
    assert ours.shape == theirs.shape
    if by_numpy_name()[theirs.dtype.name].ml_dtypes:
        theirs = theirs.astype(ours.dtype)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
    if ours.dtype.kind == "f":
        number = ~np.isnan(ours)
        np.testing.assert_array_equal(np.signbit(ours[number]), np.signbit(theirs[number]))


def values(code: int, shape: tuple[int, ...]) -> Any:
    """An array of the official numpy dtype with varied bits."""
    row = DTYPES[code]
    count = int(np.prod(shape, dtype=int))
    rng = np.random.default_rng(code)
    octets = rng.integers(0, 256, count * max(row.bits // 8, 1), np.uint8)
    if code == ps.TensorProto.BOOL:
        return (octets % 2).astype(bool).reshape(shape)
    if row.bits < 8:
        octets = to_signed(octets, row.bits) if row.numpy == "i1" else octets % (1 << row.bits)
    return octets.view(tensor_dtype_to_np_dtype(code)).reshape(shape)


def to_signed(octets: Any, bits: int) -> Any:
    """What ml_dtypes holds for int4 and int2: the sign extended to the whole byte."""
    return (octets << (8 - bits)).astype(np.uint8).view(np.int8) >> (8 - bits)


def test_rows_agree_with_the_official_mapping() -> None:
    assert {row.code: row.name for row in DTYPES.values()} == {int(v): v.name for v in ps.TensorProto.DataType if v}
    for row in DTYPES.values():
        assert row.field == onnx.helper.tensor_dtype_to_field(row.code)
        dtype = tensor_dtype_to_np_dtype(row.code)
        assert by_numpy_name()[dtype.name] is row
        if row.native:
            assert np.dtype(row.numpy) == dtype
    assert type_name(None) == "0" and type_name(1) == "FLOAT" and type_name(99) == "99"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("code", CODES, ids=[DTYPES[code].name for code in CODES])
def test_raw(code: int, shape: tuple[int, ...]) -> None:
    array = values(code, shape)
    theirs = official.from_array(array, "t")
    ours = to_ours(theirs)
    same(numpy_helper.to_array(ours), official.to_array(theirs))
    made = numpy_helper.from_array(array, "t")
    assert made.SerializeToString() == theirs.SerializeToString()
    again = (
        numpy_helper.from_codes(numpy_helper.to_codes(ours), code, "t") if code != ps.TensorProto.COMPLEX128 else made
    )
    assert again.SerializeToString() == theirs.SerializeToString()


@pytest.mark.parametrize("code", CODES, ids=[DTYPES[code].name for code in CODES])
def test_typed(code: int) -> None:
    for shape in SHAPES:
        array = values(code, shape)
        row = DTYPES[code]
        if row.bits < 8 or not row.native:
            packed = numpy_helper.from_array(array)
            codes = np.frombuffer(packed.raw_data, row.codes if row.bits >= 8 else np.uint8)
            entries = codes if row.bits != 6 else numpy_helper.to_codes(packed).ravel()
        elif code == ps.TensorProto.FLOAT16:
            entries = array.view(np.uint16).ravel()
        else:
            entries = array.ravel().view(np.uint8 if array.dtype == bool else array.real.dtype)
        theirs = onnx.TensorProto(data_type=code, dims=shape)
        getattr(theirs, row.field).extend(entries.tolist())
        same(numpy_helper.to_array(to_ours(theirs)), official.to_array(theirs))


@pytest.mark.parametrize("code", [c for c in CODES if DTYPES[c].ml_dtypes and DTYPES[c].numpy == "<f4"])
def test_every_code_of_the_small_floats(code: int) -> None:
    row = DTYPES[code]
    codes = np.arange(1 << row.bits).astype(row.codes)
    tensor = numpy_helper.from_codes(codes, code)
    same(numpy_helper.to_array(tensor), official.to_array(to_official(tensor)))
    np.testing.assert_array_equal(numpy_helper.to_codes(tensor), codes)


@pytest.mark.parametrize("code", [c for c in CODES if DTYPES[c].ml_dtypes])
def test_values_to_types_that_numpy_lacks(code: int) -> None:
    """Rounding as onnx.helper.make_tensor does it; to_array of it is what fits the type exactly."""
    row = DTYPES[code]
    array = np.array([0, 1, 0, 1], np.float32) if row.numpy != "<f4" else np.array([0.0, 0.3, 1.0, 3.5], np.float32)
    tensor = numpy_helper.from_array(array, "t", data_type=code)
    theirs = make_tensor("t", code, [4], array)
    same(numpy_helper.to_array(tensor), official.to_array(theirs))
    if code != ps.TensorProto.FLOAT8E8M0:  # its smallest value is a float32 subnormal, which make_tensor rounds up
        again = numpy_helper.from_array(numpy_helper.to_array(tensor), "t", data_type=code)
        assert again == tensor


def test_strings() -> None:
    array = np.array([["a", "\xe9"], ["", "\u65e5"]], object)
    theirs = official.from_array(array, "s")
    ours = numpy_helper.from_array(array, "s")
    assert ours.SerializeToString() == theirs.SerializeToString()
    np.testing.assert_array_equal(numpy_helper.to_array(ours), official.to_array(theirs))
    np.testing.assert_array_equal(numpy_helper.to_array(numpy_helper.from_array(np.array(["ab", "c"]))), ["ab", "c"])
    assert numpy_helper.from_array(np.array([b"ab"])).string_data == [b"ab"]
    odd = ps.TensorProto(data_type=8, dims=[2], string_data=[b"\xff", b"x"])
    assert numpy_helper.to_array(odd).tolist() == [b"\xff", "x"]
    scalar = numpy_helper.from_array(np.array("x", object))
    assert scalar.dims == [] and numpy_helper.to_array(scalar).item() == "x"


def test_nothing_is_copied() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor = numpy_helper.from_array(array)
    array[0, 0] = 7
    back = numpy_helper.to_array(tensor)
    assert back[0, 0] == 7 and np.shares_memory(back, array)
    data = tensor.SerializeToString()
    loaded = numpy_helper.to_array(ps.TensorProto.FromString(data))
    assert np.shares_memory(loaded, np.frombuffer(data, np.uint8)) and not loaded.flags.writeable
    bits = np.zeros(4, np.uint16)
    assert np.shares_memory(np.frombuffer(numpy_helper.from_codes(bits, 16).raw_data, np.uint16), bits)


STRIDED = [
    ("transposed", lambda a: a.T),
    ("every second", lambda a: a[::2, ::3]),
    ("reversed", lambda a: a[::-1]),
    ("broadcast", lambda a: np.broadcast_to(a[0], (700, *a[0].shape))),
    ("big-endian", lambda a: a.astype(">f4")),
    ("fortran order", np.asfortranarray),
    ("a slice with an empty axis", lambda a: a[:, :0]),
]


@pytest.mark.parametrize(("make"), [row[1] for row in STRIDED], ids=[row[0] for row in STRIDED])
@pytest.mark.parametrize("size", [6, 600])
def test_strided_arrays_are_written_in_order(make: Any, size: int) -> None:
    array = make(np.arange(size * size, dtype=np.float32).reshape(size, size))
    tensor = numpy_helper.from_array(array)
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), array)
    expected = np.ascontiguousarray(array, "<f4").tobytes()
    assert ps.TensorProto.FromString(tensor.SerializeToString()).raw_data == expected
    assert tensor.ByteSize() == len(tensor.SerializeToString())


BAD = [  # what is wrong, the tensor, the error, a part of its message
    ("no type", ps.TensorProto(dims=[1], raw_data=b"x"), TypeError, "data type None"),
    ("undefined", ps.TensorProto(data_type=0), TypeError, "UNDEFINED"),
    ("unknown type", ps.TensorProto(data_type=99), TypeError, "99"),
    ("short", ps.TensorProto(name="w", data_type=1, dims=[2], raw_data=b"1234"), ps.DecodeError, "'w': raw_data has 4"),
    (
        "long",
        ps.TensorProto(data_type=1, dims=[], raw_data=bytes(8)),
        ps.DecodeError,
        "raw_data has 8 bytes, but FLOAT",
    ),
    ("typed short", ps.TensorProto(data_type=1, dims=[2], float_data=[1]), ps.DecodeError, "float_data has 1 entries"),
    ("wrong list", ps.TensorProto(data_type=7, dims=[1], float_data=[1]), ps.DecodeError, "int64_data has 0 entries"),
    ("no data", ps.TensorProto(data_type=1, dims=[2]), ps.DecodeError, "0 entries"),
    ("negative", ps.TensorProto(data_type=1, dims=[-1], raw_data=b""), ps.DecodeError, "negative"),
    ("overflow", ps.TensorProto(data_type=1, dims=[2**32, 2**32], raw_data=b""), ps.DecodeError, "overflow"),
    ("overflow to 0", ps.TensorProto(data_type=2, dims=[2**62, 4], raw_data=b""), ps.DecodeError, "overflow"),
    ("huge", ps.TensorProto(data_type=1, dims=[2**60], raw_data=b"1234"), ps.DecodeError, "raw_data has 4"),
    ("huge int4", ps.TensorProto(data_type=22, dims=[2**60], int32_data=[1]), ps.DecodeError, "int32_data has 1"),
    ("int4 short", ps.TensorProto(data_type=22, dims=[3], raw_data=b"1"), ps.DecodeError, "raw_data has 1"),
    ("float6 long", ps.TensorProto(data_type=27, dims=[3], raw_data=b"1234"), ps.DecodeError, "needs 3"),
    ("65 dims", ps.TensorProto(data_type=1, dims=[1] * 65, raw_data=b"1234"), ps.DecodeError, "numpy has no arrays"),
    ("65 dims, empty", ps.TensorProto(data_type=1, dims=[0] * 65), ps.DecodeError, "numpy has no arrays"),
    ("segment", ps.TensorProto(data_type=1, segment=ps.TensorProto.Segment()), ps.DecodeError, "segment"),
    ("strings short", ps.TensorProto(data_type=8, dims=[2], string_data=[b""]), ps.DecodeError, "string_data has 1"),
]


@pytest.mark.parametrize(("tensor", "error", "part"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_tensors(tensor: ps.TensorProto, error: type[Exception], part: str) -> None:
    with pytest.raises(error) as caught:
        numpy_helper.to_array(tensor)
    assert part in str(caught.value)


def test_bad_arrays() -> None:
    for array, data_type, error in [
        (np.array(["2020-01-01"], "M8[D]"), None, TypeError),
        (np.array([object()]), None, TypeError),
        (np.array([1.0]), 99, TypeError),
        (np.array([1.0]), 8, TypeError),
        (np.array([9]), 22, ValueError),
        (np.array([-1]), 21, ValueError),
        (np.array([np.nan]), 23, ValueError),
    ]:
        with pytest.raises(error):
            numpy_helper.from_array(array, data_type=data_type)
    with pytest.raises(TypeError):
        numpy_helper.to_codes(ps.TensorProto(data_type=8))


def test_arrays_of_ml_dtypes_are_understood() -> None:
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    assert numpy_helper.from_array(array).SerializeToString() == official.from_array(array).SerializeToString()
    strided = np.arange(100000).astype(ml_dtypes.bfloat16)[::2]
    assert numpy_helper.from_array(strided).SerializeToString() == official.from_array(strided).SerializeToString()


PYTHON_VALUES = [
    [np.ones(2, np.float32), np.zeros((1, 2), np.float32)],
    [[np.ones(1)], [np.ones(2), np.zeros(3)]],
    [{1: 2.0, 3: 4.0}],
    [],
]


@pytest.mark.parametrize("value", PYTHON_VALUES, ids=["arrays", "lists", "dicts", "empty"])
def test_sequences(value: list[Any]) -> None:
    ours, theirs = numpy_helper.from_list(value, "q"), official.from_list(value, "q")
    assert ours.SerializeToString() == theirs.SerializeToString()
    np.testing.assert_equal(numpy_helper.to_list(ours), official.to_list(theirs))


@pytest.mark.parametrize("value", [{1: 2.0}, {np.int32(4): np.float32(1), np.int32(5): np.float32(2)}], ids=str)
def test_maps(value: dict[Any, Any]) -> None:
    ours, theirs = numpy_helper.from_dict(value, "m"), official.from_dict(value, "m")
    assert ours.SerializeToString() == theirs.SerializeToString()
    np.testing.assert_equal(numpy_helper.to_dict(ours), official.to_dict(theirs))


def test_maps_of_strings() -> None:
    assert numpy_helper.to_dict(numpy_helper.from_dict({"a": 1, "bc": 2})) == {b"a": 1, b"bc": 2}


@pytest.mark.parametrize("value", [None, np.ones(3), [np.ones(1)], {1: 1.0}], ids=["none", "array", "list", "dict"])
def test_optionals(value: Any) -> None:
    ours, theirs = numpy_helper.from_optional(value, "o"), official.from_optional(value, "o")
    assert ours.SerializeToString() == theirs.SerializeToString()
    np.testing.assert_equal(numpy_helper.to_optional(ours), official.to_optional(theirs))


def test_optionals_inside_of_values() -> None:
    held = numpy_helper.from_optional([np.ones(1)])
    nested = ps.OptionalProto(elem_type=ps.OptionalProto.OPTIONAL, optional_value=held)
    assert numpy_helper.to_optional(nested) == [np.ones(1)]
    elements = [held, numpy_helper.from_optional(None)]
    sequence = ps.SequenceProto(elem_type=ps.SequenceProto.OPTIONAL, optional_values=elements)
    assert numpy_helper.to_list(sequence) == [[np.ones(1)], None]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: numpy_helper.from_dict({}), ValueError),
        (lambda: numpy_helper.from_dict({1: 1.0, "a": 2.0}), TypeError),
        (lambda: numpy_helper.from_dict({1: 1.0, 2: 2}), TypeError),
        (lambda: numpy_helper.from_dict({1.5: 1.0}), TypeError),
        (lambda: numpy_helper.from_list([np.ones(1), [1]]), TypeError),
        (lambda: numpy_helper.to_list(ps.SequenceProto(elem_type=2)), TypeError),
        (lambda: numpy_helper.to_optional(ps.OptionalProto(elem_type=2)), TypeError),
        (lambda: numpy_helper.from_list([], dtype=ps.SequenceProto.OPTIONAL), TypeError),
        (lambda: numpy_helper.from_optional(np.ones(1), dtype=ps.OptionalProto.OPTIONAL), TypeError),
        (lambda: numpy_helper.from_optional(None, dtype=77), TypeError),
        (lambda: numpy_helper.to_dict(ps.MapProto(keys=[1], key_type=7)), IndexError),
    ],
)
def test_values_without_a_form(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()
