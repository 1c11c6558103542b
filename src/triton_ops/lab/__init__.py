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
    from triton_ops.lab.profile_command import parts_of as parts_of
    from triton_ops.lab.profile_command import steps as steps
    from triton_ops.lab.profile_reading import KernelProfile as KernelProfile
    from triton_ops.lab.profile_report import ProfiledKernel as ProfiledKernel
    from triton_ops.lab.profile_report import ProfileReport as ProfileReport
    from triton_ops.lab.profile_report import read_profile as read_profile
    from triton_ops.lab.ranking import RankedConfig as RankedConfig
    from triton_ops.lab.ranking import device_spec as device_spec
    from triton_ops.lab.ranking import rank as rank
    from triton_ops.lab.recording import recording_of as recording_of
    from triton_ops.lab.sensitivities import Sensitivity as Sensitivity
    from triton_ops.lab.sensitivities import in_order as in_order
    from triton_ops.lab.sensitivities import sensitivity as sensitivity
    from triton_ops.lab.simulator.command_simulate import simulate_with as simulate_with
    from triton_ops.lab.simulator.page import answers_of as answers_of
    from triton_ops.lab.simulator.page import page_of as page_of
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
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
