"""The bank for a GPU: it is imported where there is none, its kernels compile for one, and honest ones are right."""

from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.referee import shown  # noqa: E402
from benchmarks.referee.cases import FOLDER, FOR_GPU, HONEST, even_cases, functions, honest_cases  # noqa: E402
from benchmarks.referee.planted import CAUGHT, HARMLESS, cheats  # noqa: E402
from benchmarks.referee.planted import FOR_GPU as FAMILIES  # noqa: E402

from tests.launches import launches_that_do_nothing  # noqa: E402

HERE = Path(__file__).parents[3] / FOLDER
OWN = [cheat for cheat in cheats("cuda") if "cheats_on_gpu" in cheat.candidate]
ON_GPU = [case for case in (*OWN, *honest_cases("cuda")) if "_on_gpu/" in case.candidate]
SMALL = {"matmul": (70, 50, 90), "attention": (2, 70, 24)}


def stems(folder):
    return {path.stem for path in (HERE / folder).glob("*.py") if path.stem != "__init__"}


def test_there_are_forty_cheats_and_sixty_honest_cases_for_a_gpu():
    planted = list(cheats("cuda"))
    assert len({cheat.candidate for cheat in planted}) == len(planted) == 41
    written = [target for family in FAMILIES for target in functions(f"cheats_on_gpu/{family}")]
    assert Counter(cheat.candidate for cheat in OWN) == Counter(written)
    assert stems("cheats_on_gpu") == set(FAMILIES)
    assert stems("honest_on_gpu") == set(FOR_GPU)
    honest = [(case.candidate, case.size, case.dtype) for case in honest_cases("cuda")]
    assert len(set(honest)) == len(honest) >= 60
    assert sum("_on_gpu/" in candidate for candidate, _, _ in honest) >= 30
    assert len(list(even_cases("cuda"))) >= 20


def test_every_case_for_a_gpu_is_of_torch_and_has_the_size_that_the_device_has():
    for case in (*cheats("cuda"), *honest_cases("cuda"), *even_cases("cuda")):
        assert case.device == "cuda"
        assert case.task.library == "torch"
        assert case.size in case.task.on_gpu
    assert {case.answers for case in honest_cases("cuda")} == {HONEST}


@pytest.mark.parametrize("cheat", list(cheats("cuda")), ids=lambda cheat: cheat.name)
def test_a_cheat_says_what_it_does_in_a_line_and_by_what_it_is_shown(cheat):
    assert cheat.what
    assert "\n" not in cheat.what
    assert cheat.answers in (CAUGHT, HARMLESS)
    assert callable(getattr(shown, cheat.shown_by))


OTHERS = ("graph", "stream", "compiled", "flash", "memory_efficient")
KERNELS = [case for case in ON_GPU if "/triton_kernels.py" in case.candidate or (
    "honest_on_gpu" in case.candidate and not any(word in case.candidate for word in OTHERS))]  # fmt: skip
UNTUNED = [case.candidate for case in KERNELS if "honest" in case.candidate
           and not case.candidate.endswith(("autotuned", "from_list"))]  # fmt: skip


def small(case, dtype):
    """Inputs on a CPU, of a size that no tile divides."""
    return list(case.task.inputs(SMALL.get(case.task.name, (5, 130)), dtype).values())


@pytest.mark.triton
@pytest.mark.parametrize(
    "case",
    [case for case in KERNELS if case.candidate not in UNTUNED],
    ids=lambda case: case.candidate.partition("_on_gpu/")[2],
)  # the interpreter runs the others
def test_a_kernel_compiles_for_a_gpu_that_is_not_here(case):
    with launches_that_do_nothing("sm_90") as launches:
        case.function(*small(case, case.dtype))
    assert launches.made


def excess_of(candidate):
    """How far a result in float32 is from the reference in float64, in units of the largest number."""
    (case,) = [each for each in KERNELS if each.candidate == candidate]
    inputs = small(case, "float32")
    golden = shown.wide(case.reference(*map(shown.lifted, shown.copies(inputs))))[0]
    return float(abs(shown.wide(case.function(*inputs))[0] - golden).max() / abs(golden).max() / 2**-23)


@pytest.mark.triton
@pytest.mark.parametrize("candidate", UNTUNED, ids=lambda name: name.partition("_on_gpu/")[2])
def test_an_honest_kernel_agrees_with_the_reference_in_float64(interpreted, candidate):
    assert interpreted(excess_of, candidate) <= shown.ROUNDING
