"""Tensor specs: what they say of a tensor, and the tensors they make."""

import itertools
import json
import operator
import pickle
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import tensor_specs
from triton_ops.exceptions import (
    DeviceError,
    KernelTypeError,
    MissingDependencyError,
    SettingsError,
    ShapeMismatchError,
    UnsupportedDtypeError,
)
from triton_ops.values import ITEM_BYTES, TensorSpec, contiguous_stride, dtype_name
from triton_ops.values.tensors import Fill

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", ITEM_BYTES)
def test_every_dtype_is_torchs_with_its_size(name):
    dtype = getattr(torch, name)
    assert dtype_name(dtype) == dtype_name(name) == dtype_name(f"torch.{name}") == name
    assert ITEM_BYTES[name] == dtype.itemsize


@pytest.mark.parametrize(("short", "name"), [("bf16", "bfloat16"), ("FP16", "float16"), ("fp8", "float8_e4m3fn")])
def test_short_names(short, name):
    assert TensorSpec((2,), short).dtype == name


@pytest.mark.parametrize("bad", ["complex32", "fp12", "", None, 7])
def test_unknown_dtypes_are_named_with_the_known_ones(bad):
    with pytest.raises(UnsupportedDtypeError, match="known are float64, float32") as caught:
        TensorSpec((2,), bad)
    assert caught.value.dtype == bad
    assert "bfloat16" in caught.value.supported_dtypes


@given(st.lists(st.integers(0, 5), max_size=4))
def test_row_major_strides_are_torchs(shape):
    assert contiguous_stride(shape) == torch.empty(shape).stride()


@pytest.mark.parametrize(("shape", "stride"), [((2, -1), None), ((2, 3), (3,)), ((2, 3), (3, -1)), ((), (1,))])
def test_shapes_and_strides_that_do_not_fit(shape, stride):
    with pytest.raises(ShapeMismatchError):
        TensorSpec(shape, "float32", stride)


def test_row_major_stride_spelled_out_is_the_same_spec():
    assert TensorSpec((2, 3), "fp32", (3, 1)) == TensorSpec([2, 3], torch.float32)
    assert TensorSpec((2, 3), "fp32", (3, 1)).stride is None
    assert TensorSpec((2, 3), "fp32", (1, 2)).strides == (1, 2)


def test_fill_is_no_part_of_what_a_tensor_is():
    zeros = TensorSpec((2,), "fp32", fill="zeros")
    assert zeros == TensorSpec((2,), "fp32")
    assert hash(zeros) == hash(TensorSpec((2,), "fp32"))
    assert TensorSpec((2,), "fp32", aligned=False) != TensorSpec((2,), "fp32")


@pytest.mark.parametrize("thing", [3, None, [1.0], "x", torch.Tensor])
def test_what_is_no_tensor_is_refused(thing):
    with pytest.raises(KernelTypeError, match=r"not a torch\.Tensor"):
        TensorSpec((4,), "fp32").validate(thing)


def test_sizes_and_text():
    spec = TensorSpec((4, 8), "bf16", (1, 4), aligned=False)
    assert (spec.numel, spec.nbytes) == (32, 64)
    assert str(spec) == "4x8 bfloat16 stride 1x4 misaligned"
    assert str(TensorSpec((), "fp32")) == "scalar float32"
    assert TensorSpec((0, 8), "fp32").nbytes == 0


@given(tensor_specs())
def test_the_tensor_made_from_a_spec_has_that_spec(spec):
    tensor = spec.create_tensor()
    assert tensor.shape == spec.shape
    assert tensor.stride() == spec.strides
    assert str(tensor.dtype) == f"torch.{spec.dtype}"
    assert spec.validate(tensor)
    if spec.numel:  # an empty tensor has no address to be aligned
        assert TensorSpec.of(tensor) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec


@given(tensor_specs(dtypes=("float32", "float16", "float8_e4m3fn", "int32", "uint8", "bool")))
def test_fills(spec):
    values = spec.create_tensor(seed=3).to(torch.float64)
    if spec.fill == "zeros":
        assert not values.any()
    elif spec.fill == "uniform":
        low, high = (-1, 1) if spec.dtype.startswith("float") else (0, 127)
        assert ((values >= low) & (values <= high)).all()
        assert values.equal(spec.create_tensor(seed=3).to(torch.float64))
    elif spec.fill == "arange" and spec.stride is None and spec.dtype != "bool":
        assert values.flatten().tolist() == pytest.approx(range(spec.numel), rel=0.07)


@given(tensor_specs(dtypes=("float32", "bfloat16", "float8_e5m2", "int8")))
def test_fill_value_wins_over_fill(spec):
    assert (spec.create_tensor(fill_value=2).to(torch.float64) == 2).all()


def test_outliers_are_few_and_ten_times_as_large():
    values = TensorSpec((100_000,), "fp32", fill="outliers").create_tensor(seed=1)
    plain = TensorSpec((100_000,), "fp32").create_tensor(seed=1)
    far = values != plain
    assert 50 <= far.sum() <= 150
    assert values[far].equal(10 * plain[far])
    assert TensorSpec((9,), "i32", fill="outliers").create_tensor().equal(TensorSpec((9,), "i32").create_tensor())


@given(st.integers(0, 50), st.integers(0, 10**6), st.integers(0, 3))
def test_ends_rise_to_their_total(groups, total, seed):
    ends = TensorSpec((groups,), "i32", fill="ends", total=total).create_tensor(seed=seed).tolist()
    assert ends == sorted(ends)
    assert ends[-1:] == ([total] if groups else [])
    assert all(end >= 0 for end in ends)


def test_a_negative_total_is_refused():
    with pytest.raises(ShapeMismatchError, match="total is -1"):
        TensorSpec((2,), "i32", fill="ends", total=-1)


def test_an_unknown_fill_is_refused():
    with pytest.raises(SettingsError, match="fill is 'random'; it must be one of uniform, positive, outliers, whole"):
        TensorSpec((2,), "fp32", fill="random")


def test_seeds_make_different_values():
    spec = TensorSpec((256,), "bf16")
    assert not spec.create_tensor(seed=0).equal(spec.create_tensor(seed=1))


def test_uniform_uses_the_whole_range():
    values = TensorSpec((4096,), "fp32").create_tensor()
    assert values.min() < -0.99
    assert values.max() > 0.99
    assert abs(values.mean()) < 0.05


def test_both_parts_of_complex_numbers_are_drawn():
    values = torch.view_as_real(TensorSpec((4096,), "complex64").create_tensor())
    assert (values.amin(0) < -0.99).all()
    assert (values.amax(0) > 0.99).all()


def test_elements_of_16_bytes_are_aligned():
    assert TensorSpec((4,), "complex128", aligned=False) == TensorSpec((4,), "complex128")


def test_a_broadcast_argument_can_be_made():
    row = torch.randn(1, 8).expand(4, 8)
    spec = TensorSpec.of(row)
    made = spec.create_tensor()
    assert made.stride() == (0, 1)
    assert made.untyped_storage().nbytes() == 8 * 4
    assert made[0].equal(made[3])
    assert made.std() > 0


def test_check_says_what_differs_in_order():
    spec = TensorSpec((2, 3), "fp32")
    spec.check(torch.zeros(2, 3), device="cpu")
    with pytest.raises(DeviceError, match="x is on cpu, not on cuda") as wrong_device:
        spec.check(torch.zeros(3, dtype=torch.int8), "x", device="cuda")
    assert (wrong_device.value.expected_device, wrong_device.value.tensor_name) == ("cuda", "x")
    with pytest.raises(UnsupportedDtypeError, match="x is int8, not float32"):
        spec.check(torch.zeros(3, dtype=torch.int8), "x")
    with pytest.raises(ShapeMismatchError, match="x is 3x2 float32, not 2x3 float32"):
        spec.check(torch.zeros(3, 2), "x")
    with pytest.raises(ShapeMismatchError, match="stride 1x2"):
        spec.check(torch.zeros(3, 2).T, "x")


@given(tensor_specs(), tensor_specs())
def test_validate_compares_shape_dtype_and_stride(a, b):
    same = (a.shape, a.dtype, a.stride) == (b.shape, b.dtype, b.stride)
    assert a.validate(b.create_tensor()) == same


def test_a_tensor_without_strides_is_refused():
    with pytest.raises(KernelTypeError, match=r"a tensor is of layout torch\.sparse_coo; a kernel is given"):
        TensorSpec.of(torch.eye(3).to_sparse())


def test_index_lists_offsets_and_packed_pairs():
    pages = TensorSpec((4, 8), "i32", fill="shuffled").create_tensor(seed=1)
    assert sorted(pages.flatten().tolist()) == list(range(32))
    assert pages.flatten().tolist() != list(range(32))
    offsets = TensorSpec((9,), "i32", fill="offsets", total=1000).create_tensor(seed=2).tolist()
    assert (offsets[0], offsets[-1], offsets) == (0, 1000, sorted(offsets))
    assert TensorSpec((1,), "i32", fill="offsets", total=5).create_tensor().tolist() == [0]
    for dtype, least, most in (("i8", -128, 127), ("u8", 0, 255), ("i64", -(1 << 63), (1 << 63) - 1)):
        drawn = TensorSpec((100_000,), dtype, fill="bits").create_tensor().double()
        assert drawn.min() < least + (most - least) / 100
        assert drawn.max() > most - (most - least) / 100
    floats = TensorSpec((9,), "fp16", fill="bits").create_tensor()
    assert floats.equal(TensorSpec((9,), "fp16").create_tensor())


def test_values_of_ones_own(tmp_path):
    expected = torch.tensor([[0, 3], [1, 2]], dtype=torch.int32)
    torch.save(expected, tmp_path / "table.pt")
    numpy.save(tmp_path / "table.npy", expected.numpy())
    (tmp_path / "table.json").write_text("[[0, 3], [1, 2]]")
    files = [tmp_path / name for name in ("table.pt", "table.npy", "table.json")]
    for values in ([[0, 3], [1, 2]], expected, expected.numpy(), lambda shape: expected.reshape(shape), *files):
        spec = TensorSpec((2, 2), "i32", (1, 2), fill=values)
        assert spec == TensorSpec((2, 2), "i32", (1, 2))
        assert spec.create_tensor().equal(expected)
        assert spec.create_tensor().stride() == (1, 2)
    assert [TensorSpec.from_values(file).dtype for file in files] == ["int32", "int32", "int64"]
    assert TensorSpec.from_values([0.5, 1.0], "bf16").create_tensor().dtype == torch.bfloat16


def safetensors_of(tensors):
    """A file of tensors as the format describes it: the length of a JSON header, the header, the elements."""
    heads, elements = {"__metadata__": {"format": "pt"}}, b""
    kinds = {torch.int32: "I32", torch.bfloat16: "BF16"}
    for name, tensor in tensors.items():
        raw = tensor.view(torch.uint8).numpy().tobytes()
        place = [len(elements), len(elements) + len(raw)]
        heads[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        elements += raw
    header = json.dumps(heads).encode()
    return len(header).to_bytes(8, "little") + header + elements


def test_files_of_several_tensors_have_them_by_name(tmp_path):
    pages, scales = torch.tensor([[0, 3], [1, 2]], dtype=torch.int32), torch.tensor([0.5, 2.0], dtype=torch.bfloat16)
    (tmp_path / "all.safetensors").write_bytes(safetensors_of({"pages": pages, "a.scales": scales}))
    numpy.savez(tmp_path / "all.npz", pages=pages.numpy(), scales=scales.float().numpy())
    torch.save({"pages": pages, "scales": scales}, tmp_path / "all.pt")
    for name in ("all.safetensors", "all.npz", "all.pt"):
        result = TensorSpec.from_values(tmp_path / f"{name}#pages")
        assert (result, result.create_tensor().tolist()) == (TensorSpec((2, 2), "int32"), pages.tolist())
        with pytest.raises(SettingsError, match=r"it holds pages, .*name one after a #, such as FILE#pages"):
            TensorSpec.from_values(tmp_path / name)
        with pytest.raises(SettingsError, match="it holds pages, "):
            TensorSpec.from_values(tmp_path / f"{name}#page")
    assert TensorSpec.from_values(tmp_path / "all.safetensors#a.scales").create_tensor().equal(scales)
    (tmp_path / "one.safetensors").write_bytes(safetensors_of({"pages": pages}))
    assert TensorSpec.from_values(tmp_path / "one.safetensors").create_tensor().equal(pages)
    (tmp_path / "cut.safetensors").write_bytes(safetensors_of({"pages": pages})[:-3])
    with pytest.raises(SettingsError, match="holds no values of a tensor"):
        TensorSpec.from_values(tmp_path / "cut.safetensors")
    numpy.save(tmp_path / "a#1.npy", pages.numpy())
    assert TensorSpec.from_values(tmp_path / "a#1.npy").create_tensor().equal(pages)
    with pytest.raises(SettingsError, match="it holds one tensor, and none named 'x'"):
        TensorSpec.from_values(tmp_path / "a#1.npy#x")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: TensorSpec((3,), "i8", fill=[1, 2, 300]).create_tensor(), SettingsError, "int8 cannot hold all"),
        (lambda: TensorSpec((3,), "i32", fill=[0.5] * 3).create_tensor(), SettingsError, "int32 cannot hold"),
        (lambda: TensorSpec((3,), "i32", fill=[1, 2]).create_tensor(), ShapeMismatchError, "have the shape 2"),
        (lambda: TensorSpec.from_values([[1], [2, 3]]), SettingsError, "is no values of a tensor"),
        (lambda: TensorSpec.from_values("text"), SettingsError, "text is no values of a tensor"),
        (
            lambda: TensorSpec.from_values(lambda shape: shape),
            SettingsError,
            "the shape of a function's values is not known",
        ),
        (lambda: TensorSpec.from_values(Path("nowhere.npy")), SettingsError, "nowhere.npy cannot be read"),
        (
            lambda: TensorSpec.from_values(Path(__file__)),
            SettingsError,
            "ends in .npy, .npz, .pt, .safeten",
        ),
    ],
)
def test_values_that_are_none(make, error, message):
    with pytest.raises(error, match=message):
        make()


# Arrays, where torch is not installed


@pytest.fixture(scope="module")
def no_torch():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("triton_ops.values.tensors.available", lambda _: False)
        yield


@pytest.mark.parametrize("fill", get_args(Fill))
@given(spec=tensor_specs(dtypes=("float64", "float16", "int8", "uint8", "int64", "bool", "complex64")))
def test_an_array_is_what_the_spec_says_and_has_the_values_that_a_tensor_has(no_torch, fill, spec):
    spec = replace(spec, fill=fill, total=7)
    array = spec.create_tensor(seed=3)
    item = array.dtype.itemsize
    assert (array.shape, array.dtype.name) == (spec.shape, spec.dtype)
    assert array.strides == tuple(item * step for step in spec.strides)
    assert spec.aligned or not spec.numel or array.__array_interface__["data"][0] % 16
    assert fill == "empty" or numpy.array_equal(array, spec.create_tensor(seed=3))


@pytest.mark.parametrize("fill", [fill for fill in get_args(Fill) if fill != "empty"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint8", "int64", "bool", "complex64"])
def test_the_values_of_an_array_reach_as_far_as_those_of_a_tensor(no_torch, fill, dtype, monkeypatch):
    spec = TensorSpec((250, 250), dtype, fill=fill, total=100)
    array = spec.create_tensor()
    monkeypatch.setattr("triton_ops.values.tensors.available", lambda _: True)
    tensor = spec.create_tensor().numpy()
    for part in ("real", "imag"):
        ends = [(float(getattr(each, part).min()), float(getattr(each, part).max())) for each in (array, tensor)]
        assert ends[0] == pytest.approx(ends[1], abs=0.05 * (ends[1][1] - ends[1][0]))


def require_numpy(name, purpose):
    """Gives NumPy, and no torch."""
    if name == "numpy":
        return numpy
    raise MissingDependencyError(f"{name} is needed for {purpose}")


def test_the_own_values_of_an_array(no_torch, tmp_path, monkeypatch):
    table = numpy.array([[0.5, 2.0], [1.0, 3.0]])
    numpy.save(tmp_path / "table.npy", table)
    (tmp_path / "table.json").write_text("[[0.5, 2], [1, 3]]")
    for values, dtype in (
        (tmp_path / "table.npy", "float64"), (tmp_path / "table.json", "float64"), (table, "float64"),
        (table.tolist(), "float64"), (table.astype("int8").tolist(), "int64"),
    ):  # fmt: skip
        spec = TensorSpec.from_values(values)
        assert (spec.shape, spec.dtype, type(spec.create_tensor())) == ((2, 2), dtype, numpy.ndarray)
        assert numpy.array_equal(spec.create_tensor(), table.astype(dtype))
    assert TensorSpec((2,), "fp16").create_tensor(fill_value=3).tolist() == [3.0, 3.0]
    for bad in ("text", [[1], [2, 3]], [None]):
        with pytest.raises(SettingsError, match="no values of a tensor"):
            TensorSpec.from_values(bad)
    monkeypatch.setattr("triton_ops.values.tensors.require", require_numpy)
    with pytest.raises(MissingDependencyError, match="torch is needed for numbers of bfloat16, which NumPy lacks"):
        TensorSpec((2,), "bf16").create_tensor()


@pytest.mark.parametrize(
    ("fill", "free", "fits"),
    [("zeros", 64, True), ("zeros", 63, False), ("empty", 64, True), ("uniform", 192, True), ("uniform", 191, False),
     ("zeros", None, True)],
)  # fmt: skip
def test_a_tensor_for_which_the_host_has_no_memory_is_refused_before_it_is_made(monkeypatch, fill, free, fits):
    monkeypatch.setattr("triton_ops.values.tensors.Host.available_bytes", staticmethod(lambda: free))
    spec = TensorSpec((4, 8), "float16", fill=fill)  # 64 bytes, and 128 for numbers that are drawn in float32
    if fits:
        assert tuple(spec.create_tensor().shape) == (4, 8)
    else:
        with pytest.raises(ShapeMismatchError, match=r"a tensor of 4x8 float16 cannot be made on cpu"):
            spec.create_tensor()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.data())
def test_elements_that_share_memory_are_never_missed(shape, data):
    strides = data.draw(st.tuples(*[st.integers(0, 6)] * len(shape)))
    spec = TensorSpec(tuple(shape), "int8", strides)
    places = [sum(map(operator.mul, at, strides)) for at in itertools.product(*map(range, shape))]
    assert spec._span == (max(places) + 1 if places else 0)
    if len(set(places)) < len(places):
        assert spec._overlaps()
    if strides == contiguous_stride(shape):
        assert not spec._overlaps()
