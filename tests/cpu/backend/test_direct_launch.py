"""Launches that go to the C function under a launcher: what it is handed is what the launcher would hand it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("triton")
nvidia = pytest.importorskip("triton.backends.nvidia.driver")

from triton_ops.backend.offline import pretending  # noqa: E402
from triton_ops.device import Target  # noqa: E402
from triton_ops.dispatch.direct_launch import _direct_launch  # noqa: E402

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
