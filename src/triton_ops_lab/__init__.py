"""Tools to look into kernels and searches: recordings, rankings, spills, profiles and the simulator."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops_lab.command_classes import classes_command as classes_command
    from triton_ops_lab.command_compile import compile_command as compile_command
    from triton_ops_lab.command_compile import spills_command as spills_command
    from triton_ops_lab.command_expectation import cliffs_command as cliffs_command
    from triton_ops_lab.command_expectation import explain_command as explain_command
    from triton_ops_lab.command_expectation import rank_command as rank_command
    from triton_ops_lab.command_profile import call_command as call_command
    from triton_ops_lab.command_profile import command_command as command_command
    from triton_ops_lab.command_profile import flow_command as flow_command
    from triton_ops_lab.command_profile import ptxas_command as ptxas_command
    from triton_ops_lab.command_profile import read_command as read_command
    from triton_ops_lab.command_profile import run_command as run_command
    from triton_ops_lab.command_recording import record_command as record_command
    from triton_ops_lab.command_recording import replay_command as replay_command
    from triton_ops_lab.command_recording import sensitivity_command as sensitivity_command
    from triton_ops_lab.command_simulate import simulate_command as simulate_command
    from triton_ops_lab.kernel_verdicts import read_profile as read_profile
    from triton_ops_lab.ranking import RankedConfig as RankedConfig
    from triton_ops_lab.ranking import rank as rank
    from triton_ops_lab.sensitivities import sensitivity_of_run as sensitivity_of_run
    from triton_ops_lab.spills import cure_spills as cure_spills
