"""Launches that go to the C function under a launcher: what it is handed is what the launcher would hand it."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
descriptors = pytest.importorskip("triton.tools.tensor_descriptor")
nvidia = pytest.importorskip("triton.backends.nvidia.driver")

from triton_ops.backend.offline import pretending  # noqa: E402
from triton_ops.device import Target  # noqa: E402
from triton_ops.dispatch.direct_launch import Encoded, _direct_launch  # noqa: E402

pytestmark = pytest.mark.triton

PACKED = (4, 1, 0)


@pytest.fixture
def handed():
    """What the C function was handed; a launcher of Triton 3.9 looks for a driver, though it needs none."""
    with pretending(Target.named("sm_90")):
        yield []


def launcher(handed, **changed):
    """A launcher of Triton's own, as its constructor leaves it, over a function that notes what it is handed."""
    made = object.__new__(nvidia.CudaLauncher)
    vars(made).update(
        launch=lambda *given: handed.append(given), global_scratch_size=0, global_scratch_align=1,
        profile_scratch_size=0, profile_scratch_align=1, num_ctas=1, launch_cooperative_grid=False, launch_pdl=True,
        gsan_enabled=False, arg_annotations=("annotations",), kernel_signature=b"signature",
    )  # fmt: skip
    vars(made).update(changed)
    return made


@pytest.mark.parametrize("arguments", [(), (1.5,), ("x", 7, None)])
def test_the_function_is_handed_what_the_launcher_hands_it(handed, arguments):
    own = launcher(handed)
    function, between, packed = _direct_launch(own, PACKED)
    assert handed == []  # asking launches nothing
    own(2, 3, 4, 77, "kernel", PACKED, None, None, None, *arguments)
    rest = (arguments,) if packed else arguments
    function(2, 3, 4, 77, "kernel", *between, *rest)
    assert handed[0] == handed[1]
    assert len(handed) == 2


@pytest.mark.parametrize(
    "changed", [{"global_scratch_size": 64}, {"profile_scratch_size": 64}, {"gsan_enabled": True}, {"launch": None}]
)
def test_a_launcher_that_does_more_is_called_itself(handed, changed):
    assert _direct_launch(launcher(handed, **changed), PACKED) is None


def test_a_launcher_of_another_kind_is_called_itself():
    def launches(*_):
        pytest.fail("nothing may be launched")

    assert _direct_launch(launches, PACKED) is None
    assert _direct_launch(SimpleNamespace(launch=launches), PACKED) is None

    class Twice(SimpleNamespace):
        def __call__(self, *given):
            self.launch(*given)
            self.launch(*given)

    class Changing(SimpleNamespace):
        def __call__(self, *given):
            self.launch(*given[:5], object(), *given[9:])

    for kind in (Twice, Changing):
        made = kind(launch=launches, global_scratch_size=0, profile_scratch_size=0)
        assert _direct_launch(made, PACKED) is None


DESCRIBED = {"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": [8, 16], "fp4_padded": False}


def with_descriptors(handed, meta):
    """A launcher of a kernel of a pointer, a descriptor and a number, and what its descriptors are encoded to."""
    encoded = mock.MagicMock(side_effect=lambda *_: object())
    utils = mock.MagicMock(**dict.fromkeys(("fill_tma_descriptor", "fill_tma_descriptor_tiled"), encoded))
    signature = {"x": "*fp16", "d": "tensordesc<fp16[8, 16]>", "n": "i32"}
    launch = nvidia.wrap_handle_tensordesc(lambda *given: handed.append(given), signature, meta)
    active = mock.patch.object(triton.runtime.driver.active, "utils", utils, create=True)
    return launcher(handed, launch=launch), active, encoded


def descriptor(tensor):
    return descriptors.TensorDescriptor.from_tensor(tensor, [8, 16])


def test_descriptors_are_encoded_once_for_their_addresses(handed):
    own, active, encoded = with_descriptors(handed, [DESCRIBED])
    one, other = torch.zeros(32, 64).half(), torch.zeros(32, 64).half()
    with active:
        run, known, encode = Encoded.of(*_direct_launch(own, PACKED))
        for tensor in (one, other, one):
            at = (tensor.data_ptr(),)
            rest = known(at) or encode(at, (tensor.data_ptr(), descriptor(tensor), 5))
            run(2, 3, 4, 77, "kernel", *rest)
            own(2, 3, 4, 77, "kernel", PACKED, None, None, None, tensor.data_ptr(), descriptor(tensor), 5)
    again = handed[::2]
    assert encoded.call_count == 2 + 3
    assert again[0] == again[2] != again[1]
    assert [flat(each) for each in again] == [flat(each) for each in handed[1::2]]


def flat(handed):
    """What the C function was handed, with a mark in the place of what a descriptor was encoded to."""
    parts = [each for part in handed for each in (part if isinstance(part, (list, tuple)) else [part])]
    return ["encoded" if type(part) is object else part for part in parts]


def test_a_descriptor_of_which_the_tensor_is_handed_on_is_not_kept(handed):
    own, active, _ = with_descriptors(handed, None)
    tensor = torch.zeros(32, 64).half()
    with active:
        _, known, encode = Encoded.of(*_direct_launch(own, PACKED))
        assert any(part is tensor for part in flat(encode((1,), (7, descriptor(tensor), 5))))
    assert known((1,)) is None


def test_a_launch_without_descriptors_has_nothing_to_encode(handed):
    assert Encoded.of(*_direct_launch(launcher(handed), PACKED)) is None
