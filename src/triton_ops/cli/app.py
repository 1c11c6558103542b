"""The list of commands of `triton-ops`, by sections."""

from __future__ import annotations

from collections.abc import Sequence

from triton_ops import __version__
from triton_ops.terminal import Program

_EPILOG = """\b
Exit codes:
  0    done
  1    no configuration ran
  2    bad input
  3    no such device or package
  4    no such record; or cache, lockfile or run log cannot be used
  5    a check found something
  6    a kernel that a file names is not loaded
  7    no target of a check has a kernel
  8    a check compared too little to tell
  70   internal error
  130  interrupted; the same command goes on

`triton-ops completion bash` prints what makes bash complete; or zsh, fish."""
_SECTIONS = {
    "Tune": {
        "tune": ("cli.tune", "tune_command", "Find the fastest config of TARGET, or recall it."),
        "bench": ("benchmark", "bench_command", "Find out whether A is faster than B."),
        "check": ("benchmark", "check_command", "Find out whether a candidate is right, and faster."),
        "torch modes": ("triton_ops_torch", "compile_modes_command", "Find the best way to torch.compile a model."),
        "torch advise": ("triton_ops_torch", "advise_command", "Say what is worth doing about a model's speed."),
        "torch options": ("triton_ops_torch", "options_command", "List what torch's compiler can be told."),
        "torch backends": (
            "triton_ops_torch",
            "backends_command",
            "Say which backends tune a product, and why not all.",
        ),
        "torch cache": ("triton_ops_torch", "inductor_cache_command", "Show the compiler's cache folder, or clean it."),
        "torch log": ("triton_ops_torch", "log_command", "Read what the compiler wrote."),
        "torch draw": ("triton_ops_torch", "draw_command", "Draw captured graphs, and say how two differ."),
    },
    "Look": {
        "cache show": ("cli.cache", "show_command", "Show what is known: winners, gains, devices."),
        "cache misses": ("cli.cache", "misses_command", "List the problems that nothing answered."),
        "cache rm": ("cli.cache", "remove_command", "Remove records."),
        "cache path": ("cli.cache", "path_command", "Print the folder of records."),
        "cache export": ("cli.cache", "export_command", "Write records to one file."),
        "cache import": ("cli.cache", "import_command", "Take in the records of such a file."),
        "report": ("report", "report_command", "Show what runs say: text, Markdown, or a page."),
        "why": ("cli.why", "why_command", "Say which config a call would run, and why."),
        "explain": ("triton_ops_lab", "explain_command", "Say what limits a config on a device, and why."),
        "explain rank": ("triton_ops_lab", "rank_command", "Order a space by expected times, without a GPU."),
        "explain spills": ("triton_ops_lab", "spills_command", "Say what a config spills, and try cures."),
        "explain cliffs": ("triton_ops_lab", "cliffs_command", "Say at which shapes a wave is added."),
        "explain classes": ("triton_ops_lab", "classes_command", "Say which configs give the same bits."),
        "explain sensitivity": (
            "triton_ops_lab",
            "sensitivity_command",
            "Say which tunables matter, from a recording.",
        ),
        "explain profile": ("triton_ops_lab", "read_command", "Say what limits kernels, from a profile."),
        "explain profile run": ("triton_ops_lab", "run_command", "Profile a program here, and say what limits it."),
        "explain profile flow": ("triton_ops_lab", "flow_command", "Time TARGET, and say what limits its kernels."),
        "explain profile command": ("triton_ops_lab", "command_command", "Print the command that profiles a program."),
        "explain profile ptxas": (
            "triton_ops_lab",
            "ptxas_command",
            "Say which kernels spill, from the assembler's words.",
        ),
        "explain profile call": ("triton_ops_lab", "call_command", "Call TARGET some times, for a profiler."),
        "compile": ("triton_ops_lab", "compile_command", "Show what every config takes, without a GPU."),
        "lint": ("triton_ops_lint", "lint_command", "Find pitfalls in kernels, without a GPU."),
        "mcp": ("triton_ops_mcp", "mcp_command", "Serve six of these commands to agents, as tools."),
        "doctor": ("cli.doctor", "doctor_command", "Say what works here, what does not, and why."),
    },
    "Ship": {
        "lock": ("cli.lock", "lock_command", "Pin winners in a file for git, or check it."),
        "lock verify": ("ship", "verify_command", "Check a lockfile, and measure it again."),
        "lock keys": ("cli.keys", "keys_command", "Say which parts of a key matter, from records."),
        "lock portfolio": ("ship", "portfolio_command", "Choose few configs for many problems of a kernel."),
        "exchange export": ("ship", "export_command", "Write a kernel's entries as a table of an engine."),
        "exchange import": ("ship", "import_command", "Take a table's fastest configs into a lockfile."),
        "exchange look-up": ("ship", "look_up_command", "Print the config that the engine would take."),
        "engine list": ("triton_ops_serving", "list_command", "List a model's problems in a serving engine."),
        "engine check": ("triton_ops_serving", "check_command", "Say which tables the engine finds for them."),
        "engine tune": ("triton_ops_serving", "tune_command", "Tune the engine's own kernels on them."),
        "engine export": ("triton_ops_serving", "export_command", "Write, compare or undo the engine's tables."),
    },
    "Learn": {
        "tour": ("cli.tour", "tour_command", "Show the main commands at work, without a GPU."),
        "simulate": ("triton_ops_lab", "simulate_command", "Rank configs of a workload or a TARGET, and say why."),
        "record": ("triton_ops_lab", "record_command", "Measure a whole space, to judge searches on it."),
        "replay": ("triton_ops_lab", "replay_command", "Judge a search on recorded spaces."),
        "calibrate": ("cli.calibrate", "calibrate_command", "Measure this GPU for the model."),
    },
}  # the room or package of each, its function there, and its short help, in the order of `--help`
_GROUPS = {
    "torch": "Compile models: ways, options, caches and logs.",
    "cache": "Show, remove, locate, export and import records.",
    "exchange": "Carry tables from and to other engines.",
    "engine": "Tables of vLLM and SGLang for a model: triton-ops-serving.",
}

PROGRAM = Program(
    "triton-ops", "Autotune Triton kernels and any callable: measured, verified, remembered.", version=__version__,
    epilog=_EPILOG, sections=_SECTIONS, groups=_GROUPS,
    words=dict.fromkeys(
        ("TARGET", "TARGET...", "A", "B", "KERNEL", "KERNEL|ID", "KERNELS"), ("backend", "Operation.shipped_names")
    ),
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    return PROGRAM.run(arguments)
