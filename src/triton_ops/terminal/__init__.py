"""Parts that all commands share: lines and tables, options, errors as exit codes, Ctrl-C, and pages for browsers."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.terminal.console import agrees as agrees
    from triton_ops.terminal.console import bold as bold
    from triton_ops.terminal.console import fits as fits
    from triton_ops.terminal.console import headed_table as headed_table
    from triton_ops.terminal.console import listing as listing
    from triton_ops.terminal.console import only_data_on_stdout as only_data_on_stdout
    from triton_ops.terminal.console import paragraph as paragraph
    from triton_ops.terminal.console import say as say
    from triton_ops.terminal.console import say_json as say_json
    from triton_ops.terminal.console import table as table
    from triton_ops.terminal.console import tell as tell
    from triton_ops.terminal.console import width as width
    from triton_ops.terminal.console import write_output as write_output
    from triton_ops.terminal.interrupts import INTERRUPTED as INTERRUPTED
    from triton_ops.terminal.interrupts import end_at_once_when_interrupted as end_at_once_when_interrupted
    from triton_ops.terminal.option_types import CacheDir as CacheDir
    from triton_ops.terminal.option_types import Device as Device
    from triton_ops.terminal.option_types import Dtype as Dtype
    from triton_ops.terminal.option_types import Json as Json
    from triton_ops.terminal.option_types import NoWait as NoWait
    from triton_ops.terminal.option_types import OneShape as OneShape
    from triton_ops.terminal.option_types import Shape as Shape
    from triton_ops.terminal.option_types import Space as Space
    from triton_ops.terminal.option_types import Verbose as Verbose
    from triton_ops.terminal.option_types import folder_of as folder_of
    from triton_ops.terminal.option_types import group as group
    from triton_ops.terminal.option_types import option as option
    from triton_ops.terminal.option_types import pairs as pairs
    from triton_ops.terminal.option_types import program_version as program_version
    from triton_ops.terminal.page_server import PageServer as PageServer
    from triton_ops.terminal.running import CHECK_FAILED as CHECK_FAILED
    from triton_ops.terminal.running import NOT_LOADED as NOT_LOADED
    from triton_ops.terminal.running import is_verbose as is_verbose
    from triton_ops.terminal.running import run as run
    from triton_ops.terminal.running import tell_failures as tell_failures
    from triton_ops.terminal.stderr_console import stderr as stderr
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
