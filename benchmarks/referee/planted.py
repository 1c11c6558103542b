"""The table of planted cheats: what each cheats at, what shows it, and what a referee may answer.

The file of a family for CPUs has its five functions. A referee never answers `faster`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.referee.cases import FOLDER, TASKS, Case

CAUGHT = ("wrong", "suspect")
"""The right answers about a cheat whose results are wrong, or are no plain arrays."""

HARMLESS = (*CAUGHT, "same", "slower", "undecided")
"""The right answers about a cheat whose results are right, or which computes them where its trick does not work."""


FOR_GPU = ("side_streams", "graphs", "device_memory", "forged_waiting", "load_on_device", "triton_kernels")
"""Families that need a GPU, in `cheats_on_gpu`."""


@dataclass(frozen=True)
class Cheat(Case):
    """A planted cheat.

    Attributes:
        shown_by: What shows it, a function of `benchmarks.referee.shown`.
        fools: Whom it fools; empty for a naive check: the same inputs twice, and a loose tolerance.
    """

    shown_by: str = ""
    fools: str = ""

    @property
    def name(self) -> str:
        """The name of its function."""
        return self.candidate.rpartition(":")[2]

    @property
    def what(self) -> str:
        """What it does, in a line."""
        return inspect.getdoc(self.function) or ""


_TABLE = """
kept_results     by_shape             rms_norm         fresh_inputs      caught
kept_results     by_address           softmax          refilled_inputs   harmless
kept_results     by_few_values        matmul           refilled_inputs   harmless
kept_results     by_identity          attention        refilled_inputs   harmless
kept_results     by_version           conv2d           refilled_inputs   harmless
counted_calls    honest_then_kept     rms_norm         fresh_inputs      caught
counted_calls    kept_in_a_row        softmax          fresh_inputs      harmless
counted_calls    kept_for_timers      matmul           fresh_inputs      harmless
counted_calls    every_second         cumulative_sum   fresh_inputs      caught
counted_calls    kept_without_gc      sort_rows        fresh_inputs      harmless
deferred_work    in_a_thread          matmul           copy_at_return    harmless
deferred_work    half_in_a_thread     softmax          copy_at_return    harmless
deferred_work    in_a_process         sort_rows        copy_at_return    harmless
deferred_work    lazy_tensor          attention        kind_of_result    caught
deferred_work    late_array           cumulative_sum   kind_of_result    caught
forged_clock     slow_clock           rms_norm         changed_process   harmless
forged_clock     stopped_clock        softmax          changed_process   harmless
forged_clock     callers_clock        matmul           changed_process   harmless
forged_clock     device_events        attention        changed_process   harmless
forged_clock     kind_statistics      cumulative_sum   changed_process   harmless
forged_judge     torch_comparisons    softmax          fresh_inputs      caught
forged_judge     numpy_comparisons    sort_rows        fresh_inputs      caught
forged_judge     tensor_differences   attention        fresh_inputs      caught
forged_judge     assertions_module    rms_norm         fresh_inputs      caught
forged_judge     reference_code       histogram        changed_process   caught
stolen_answers   from_stack           softmax          given_result      harmless
stolen_answers   from_gc              rms_norm         given_result      harmless
stolen_answers   from_freed_memory    matmul           fresh_inputs      caught
stolen_answers   from_parent          softmax          read_files        harmless
stolen_answers   from_references_file cumulative_sum   read_files        harmless
forged_protocol  answers_on_pipes     softmax          fresh_inputs      caught
forged_protocol  reads_questions      matmul           taken_message     harmless
forged_protocol  ends_early           cumulative_sum   early_end         caught
forged_protocol  runs_when_unpickled  sort_rows        kind_of_result    caught
forged_protocol  forged_numbers       cumulative_sum   changed_process   harmless
skipped_work     constant             softmax:2        precision         caught
skipped_work     tail_of_rows         softmax          another_shape     caught
skipped_work     tail_of_sums         matmul           another_shape     caught
skipped_work     one_block            cumulative_sum   another_shape     caught
skipped_work     ends_alone           rms_norm         fresh_inputs      caught
lower_precision  half_product         matmul           precision         caught
lower_precision  bfloat16_softmax     softmax          precision         caught
lower_precision  half_attention       attention        precision         caught
lower_precision  single_sums          cumulative_sum:0:1 precision       caught
lower_precision  tanh_gelu            gelu_            precision         caught
changed_inputs   sorted_input         sort_rows        kept_inputs       caught
changed_inputs   softmax_of_input     softmax          kept_inputs       caught
changed_inputs   zeroed_input         matmul           kept_inputs       caught
changed_inputs   nothing_done         gelu_            fresh_inputs      caught
changed_inputs   shortened_inputs     attention        kept_inputs       caught
assumed_values   without_maximum      softmax          other_values      caught
assumed_values   one_maximum          cross_entropy    other_values      caught
assumed_values   no_nan               rms_norm         other_values      harmless
assumed_values   unit_variance        rms_norm:2       other_values      caught
assumed_values   all_inside           histogram        other_values      caught
other_load       spinning_threads     rms_norm         changed_process   harmless
other_load       one_slow_cpu         softmax          changed_process   harmless
other_load       one_thread           matmul           changed_process   harmless
other_load       poor_environment     attention        changed_process   harmless
other_load       delayed_reference    sort_rows        changed_process   harmless
"""  # a task's size and dtype, by number, where they are not the first

_ON_GPU = """
kept_results     by_shape             rms_norm         fresh_inputs      caught
kept_results     by_address           softmax          refilled_inputs   harmless
kept_results     by_few_values        matmul           refilled_inputs   harmless
kept_results     by_identity          attention        refilled_inputs   harmless
counted_calls    honest_then_kept     rms_norm         fresh_inputs      caught
counted_calls    kept_for_timers      matmul           fresh_inputs      harmless
deferred_work    in_a_thread          matmul           copy_at_return    harmless
deferred_work    lazy_tensor          attention        kind_of_result    caught
forged_clock     device_events        attention        changed_process   harmless
forged_judge     torch_comparisons    softmax          fresh_inputs      caught
stolen_answers   from_gc              rms_norm         given_result      harmless
skipped_work     tail_of_rows         softmax          another_shape     caught
lower_precision  half_product         matmul           precision         caught
lower_precision  bfloat16_softmax     softmax          precision         caught
changed_inputs   zeroed_input         matmul           kept_inputs       caught
assumed_values   without_maximum      softmax          other_values      caught
other_load       spinning_threads     rms_norm         changed_process   harmless
side_streams     not_waited_for       softmax          copy_at_return    harmless
side_streams     half_not_waited_for  rms_norm         copy_at_return    harmless
side_streams     launched_after_return matmul          copy_at_return    caught
side_streams     own_current_stream   attention        changed_process   harmless
graphs           stale_inputs         softmax          fresh_inputs      caught
graphs           copied_each_second_call rms_norm      fresh_inputs      caught
graphs           written_over         matmul           later_look        caught
device_memory    by_checksum          softmax          refilled_inputs   harmless
device_memory    by_storage_size      conv2d           fresh_inputs      caught
device_memory    freed_memory         attention        fresh_inputs      caught
device_memory    half_freed_memory    softmax          fresh_inputs      caught
forged_waiting   nothing_waits        rms_norm         changed_process   harmless
forged_waiting   nothing_waits_below  softmax          changed_process   harmless
forged_waiting   events_of_a_hundredth matmul          changed_process   harmless
load_on_device   spins_after_return   softmax          busy_device       harmless
load_on_device   full_memory          matmul           taken_memory      harmless
triton_kernels   tail_of_rows         softmax          another_shape     caught
triton_kernels   no_mask              softmax          another_shape     caught
triton_kernels   half_sums            rms_norm         precision         caught
triton_kernels   tf32_product         matmul           precision         caught
triton_kernels   divided_inner        matmul           another_shape     caught
triton_kernels   half_of_the_tiles    matmul           fresh_inputs      caught
triton_kernels   racing_sums          cross_entropy    fresh_inputs      caught
triton_kernels   unset_sums           cross_entropy    fresh_inputs      caught
"""

_FOOLS = {
    "assertions_module": "judges that call torch.testing",
    "reference_code": "judges that call the reference later",
    "from_freed_memory": "harnesses that free a right result first",
    "answers_on_pipes": "harnesses that trust a pipe",
    "ends_early": "harnesses that read the output or exit code",
    "runs_when_unpickled": "harnesses that unpickle results",
    "ends_alone": "judges that look at the first and last rows",
    "nothing_done": "harnesses where the reference ran on its inputs",
    "shortened_inputs": "harnesses that run the reference afterwards",
}  # who is fooled, where a naive check is not


def cheats(device: str = "cpu") -> Iterator[Cheat]:
    """All planted cheats for a device, by family."""
    for row in (_TABLE if device == "cpu" else _ON_GPU).strip().splitlines():
        family, name, problem, shown_by, answers = row.split()
        word, size, dtype = (*problem.split(":"), "0", "0")[:3]
        task, folder = TASKS[word], "cheats_on_gpu" if family in FOR_GPU else "cheats"
        yield Cheat(
            f"{FOLDER}/{folder}/{family}.py:{name}", task, task.sizes_on(device)[int(size)], task.dtypes[int(dtype)],
            CAUGHT if answers == "caught" else HARMLESS, device=device, shown_by=shown_by, fools=_FOOLS.get(name, ""),
        )  # fmt: skip
