"""Tensors of dtypes that torch only stores, such as pairs of 4-bit floats: as results, arguments and examples."""

from __future__ import annotations

import pickle

import pytest
import torch

from tests.tuned_kernels import add, grid
from triton_ops import TensorSpec, tune
from triton_ops.backend import Arguments, ArgumentSet, Packed, TritonKernel
from triton_ops.evaluation.expected import Standard, difference, expected, kept
from triton_ops.evaluation.judges import Precision
from triton_ops.evaluation.numbers import dense, same_bits_of
from triton_ops.exceptions import UnsupportedDtypeError

FLOAT4 = torch.float4_e2m1fn_x2
STORED = [
    FLOAT4,
    torch.bits8,
    torch.bits16,
    torch.bits4x2,
    *(getattr(torch, f"{s}int{n}") for s in ("", "u") for n in range(1, 8)),
]
COMPUTED = [
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
    torch.uint16, torch.uint32, torch.uint64, torch.complex32, torch.bool,
]  # fmt: skip
VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def bits(count=64, dtype=torch.uint8):
    """Bytes that are no NaN in any of the dtypes, as a tensor of one."""
    return (torch.arange(count, dtype=torch.uint8) % (2 if dtype is torch.bool else 60)).view(dtype)


def test_codes_of_4_bit_floats_are_in_the_order_of_their_values():
    pairs = torch.arange(256, dtype=torch.uint8).view(FLOAT4)
    values = [value * sign for sign in (1, -1) for value in VALUES]
    codes = dense(pairs)
    assert codes.shape == (256, 2)
    for byte in range(256):
        pair = [values[byte & 15], values[byte >> 4]]
        assert sorted([0, 1], key=lambda at: codes[byte, at]) == sorted([0, 1], key=lambda at: pair[at])
        assert [(codes[byte, at] == 0) == (pair[at] == 0) for at in (0, 1)] == [True, True]
    assert same_bits_of(pairs, pairs.clone())
    assert not same_bits_of(bits().view(FLOAT4), (bits() | 8).view(FLOAT4)), "the zeros are told apart"


@pytest.mark.parametrize("dtype", STORED + COMPUTED, ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_a_result_of_any_dtype_is_kept_and_compared(dtype):
    own = bits(dtype=dtype)
    target = expected(kept(own), None, None, Standard(precision=Precision(inputs=("int32",))))
    assert difference(own.view(torch.uint8).clone().view(dtype), target) is None
    other = own.view(torch.uint8).clone()
    other[7] ^= 1 if dtype is torch.bool else 0x44
    assert difference(other.view(dtype), target) is not None
    assert difference(own.view(torch.uint8), target) is not None or dtype is torch.uint8


def test_one_code_of_a_thousand_may_be_one_apart_where_floats_are_quantised():
    own = bits(2000).view(FLOAT4)
    near, far = own.view(torch.uint8).clone(), own.view(torch.uint8).clone()
    near[3], far[3] = near[3] + 1, far[3] + 2
    for inputs, right in (("bfloat16", True), ("int32", False)):
        target = expected(own, None, None, Standard(precision=Precision(inputs=(inputs,))))
        assert (difference(near.view(FLOAT4), target) is None) == right
        assert difference(far.view(FLOAT4), target) is not None


@pytest.mark.parametrize("dtype", [FLOAT4, torch.float8_e8m0fnu], ids=str)
def test_arguments_are_copied_poisoned_restored_and_sent(dtype):
    x, out = bits(dtype=dtype), bits(dtype=dtype)
    sent = Packed.loaded(Packed.of(Arguments((x,)), most_bytes=0 if dtype is FLOAT4 else 1 << 20).content)
    assert same_bits_of(sent.positional[0], x)
    assert pickle.loads(pickle.dumps(TensorSpec.of(x))) == TensorSpec.of(x)
    arguments = ArgumentSet(Arguments(keyword={"x": x, "out": out}), ("out",))
    poisoned = []
    for pattern in (0, 1):
        arguments.poison(pattern)
        poisoned.append(arguments.arguments.keyword["out"].view(torch.uint8).clone())
    assert not poisoned[0].equal(poisoned[1])
    arguments.arguments.keyword["x"].view(torch.uint8)[3] += 1
    assert list(arguments.changed()) == ["x"]
    arguments.restore()
    assert not arguments.changed()


@pytest.mark.parametrize("fill", ["uniform", "zeros", "bits", "arange"])
def test_examples_of_4_bit_floats_are_bits(fill):
    example = TensorSpec((64, 8), "float4_e2m1fn_x2", fill=fill).create_tensor()
    with pytest.raises(UnsupportedDtypeError, match="cannot be filled with a number"):
        TensorSpec((8,), "float4_e2m1fn_x2").create_tensor(fill_value=1)
    assert (example.dtype, len(example.view(torch.uint8).unique()) > 1) == (FLOAT4, fill != "zeros")


def pack(x, *, a):
    """Quantises by a sum of bytes; the last config is wrong."""
    return (x + 3 * (a == 2)).view(FLOAT4)


def pack_into(x, out, *, a):
    """The same, written."""
    out.view(torch.uint8).copy_(x + 3 * (a == 2))


def unpack(x, *, a):
    """Takes pairs, and gives numbers."""
    return dense(x).float() + (a == 2)


@pytest.mark.parametrize("isolate", [False, pytest.param(True, marks=pytest.mark.processes)])
def test_functions_that_give_write_or_take_4_bit_floats_are_tuned(isolate, steady_clock):
    for function, args, reference in (
        (pack, (bits(),), lambda x: x.clone().view(FLOAT4)), (pack, (bits(),), None),
        (pack_into, (bits(), torch.zeros(64, dtype=torch.uint8).view(FLOAT4)), None),
        (unpack, (bits().view(FLOAT4),), lambda x: unpack(x, a=0)), (unpack, (bits().view(FLOAT4),), None),
    )[: 1 if isolate else None]:  # fmt: skip
        result = tune(
            function, args, space={"a": [0, 1, 2]}, reference=reference, device="cpu", keep=False, isolate=isolate
        )
        assert [t.status.value for t in sorted(result.trials, key=lambda t: t.config["a"])] == ["ok", "ok", "wrong"]
        assert not [note for note in result.notes if "not implemented" in note]


def test_a_triton_kernel_is_not_given_a_dtype_that_triton_lacks():
    x = bits().view(FLOAT4)
    with pytest.raises(UnsupportedDtypeError, match=r"Triton has no float4_e2m1fn_x2.*pass its bits: x_ptr\.view"):
        TritonKernel(add, grid=grid, outputs=["out_ptr"]).check(["BLOCK"], Arguments((x, x, x, 8)))
