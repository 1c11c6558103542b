"""Tools to look into kernels and searches: recordings, rankings, spills, profiles and the simulator."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.lab.command_compile import compile_command as compile_command
    from triton_ops.lab.command_compile import spills_command as spills_command
    from triton_ops.lab.command_expectation import cliffs_command as cliffs_command
    from triton_ops.lab.command_expectation import explain_command as explain_command
    from triton_ops.lab.command_expectation import rank_command as rank_command
    from triton_ops.lab.command_profile import profile_group as profile_group
    from triton_ops.lab.command_recording import record_command as record_command
    from triton_ops.lab.command_recording import replay_command as replay_command
    from triton_ops.lab.command_recording import sensitivity_command as sensitivity_command
    from triton_ops.lab.expectation import Explained as Explained
    from triton_ops.lab.expectation import Portrait as Portrait
    from triton_ops.lab.expectation import explain as explain
    from triton_ops.lab.expectation import portrait as portrait
    from triton_ops.lab.launches import launches_that_do_nothing as launches_that_do_nothing
    from triton_ops.lab.many_replays import LiveSummary as LiveSummary
    from triton_ops.lab.many_replays import ReplayPlan as ReplayPlan
    from triton_ops.lab.many_replays import SpaceSummary as SpaceSummary
    from triton_ops.lab.many_replays import replay_all as replay_all
    from triton_ops.lab.many_replays import replay_live as replay_live
    from triton_ops.lab.profile_command import SAMPLED_MS as SAMPLED_MS
    from triton_ops.lab.profile_command import SETS as SETS
    from triton_ops.lab.profile_command import WARM_MS as WARM_MS
    from triton_ops.lab.profile_command import NcuRequest as NcuRequest
    from triton_ops.lab.profile_command import Part as Part
    from triton_ops.lab.profile_command import Step as Step
    from triton_ops.lab.profile_command import idle_share as idle_share
    from triton_ops.lab.profile_command import ncu_command as ncu_command
    from triton_ops.lab.profile_command import parts_of as parts_of
    from triton_ops.lab.profile_command import run_ncu as run_ncu
    from triton_ops.lab.profile_command import steps as steps
    from triton_ops.lab.profile_reading import KernelProfile as KernelProfile
    from triton_ops.lab.profile_report import ProfiledKernel as ProfiledKernel
    from triton_ops.lab.profile_report import ProfileReport as ProfileReport
    from triton_ops.lab.profile_report import device_of as device_of
    from triton_ops.lab.profile_report import placed_below_roof as placed_below_roof
    from triton_ops.lab.profile_report import read_profile as read_profile
    from triton_ops.lab.ptxas_log import Assembled as Assembled
    from triton_ops.lab.ptxas_log import read_ptxas as read_ptxas
    from triton_ops.lab.ranking import RankedConfig as RankedConfig
    from triton_ops.lab.ranking import device_spec as device_spec
    from triton_ops.lab.ranking import expected_of as expected_of
    from triton_ops.lab.ranking import rank as rank
    from triton_ops.lab.recorder import record as record
    from triton_ops.lab.recorder import write_recording as write_recording
    from triton_ops.lab.recording import read_recording as read_recording
    from triton_ops.lab.recording import recording_of as recording_of
    from triton_ops.lab.replay import LiveConditions as LiveConditions
    from triton_ops.lab.replay import PreviewAllowance as PreviewAllowance
    from triton_ops.lab.sensitivities import Cliff as Cliff
    from triton_ops.lab.sensitivities import Knob as Knob
    from triton_ops.lab.sensitivities import Sensitivity as Sensitivity
    from triton_ops.lab.sensitivities import cliffs as cliffs
    from triton_ops.lab.sensitivities import in_order as in_order
    from triton_ops.lab.sensitivities import sensitivity as sensitivity
    from triton_ops.lab.simulator.advice import config_text as config_text
    from triton_ops.lab.simulator.advice import percent as percent
    from triton_ops.lab.simulator.advice import reasons as reasons
    from triton_ops.lab.simulator.as_json import overlay_json as overlay_json
    from triton_ops.lab.simulator.as_json import simulation_json as simulation_json
    from triton_ops.lab.simulator.command_simulate import simulate_command as simulate_command
    from triton_ops.lab.simulator.one_tunable import Dial as Dial
    from triton_ops.lab.simulator.one_tunable import timelines as timelines
    from triton_ops.lab.simulator.page import page_of as page_of
    from triton_ops.lab.simulator.places import Standing as Standing
    from triton_ops.lab.simulator.recorded import Overlay as Overlay
    from triton_ops.lab.simulator.recorded import overlay_of as overlay_of
    from triton_ops.lab.simulator.simulation import DEVICE as DEVICE
    from triton_ops.lab.simulator.simulation import Simulation as Simulation
    from triton_ops.lab.simulator.simulation import simulate as simulate
    from triton_ops.lab.simulator.simulation import whole_space as whole_space
    from triton_ops.lab.simulator.simulation import workload_named as workload_named
    from triton_ops.lab.simulator.workloads import WORKLOADS as WORKLOADS
    from triton_ops.lab.spills import SpillEvidence as SpillEvidence
    from triton_ops.lab.spills import SpillReport as SpillReport
    from triton_ops.lab.spills import Tried as Tried
    from triton_ops.lab.spills import cure_spills as cure_spills
    from triton_ops.lab.wave_cliffs import MOST_POINTS as MOST_POINTS
    from triton_ops.lab.wave_cliffs import ShapePoint as ShapePoint
    from triton_ops.lab.wave_cliffs import Sweep as Sweep
    from triton_ops.lab.wave_cliffs import sweep as sweep
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
