"""Files, locks, checksums, fingerprints, optional packages and CPUs, on which every room stands."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.base.files import AppendedFile as AppendedFile
    from triton_ops.base.files import atomic_write as atomic_write
    from triton_ops.base.files import check_home as check_home
    from triton_ops.base.files import ensure_folder as ensure_folder
    from triton_ops.base.files import folder_within as folder_within
    from triton_ops.base.files import holds as holds
    from triton_ops.base.files import is_file as is_file
    from triton_ops.base.files import is_folder as is_folder
    from triton_ops.base.files import last_line as last_line
    from triton_ops.base.files import make_folders as make_folders
    from triton_ops.base.files import read_file as read_file
    from triton_ops.base.files import skip_syncs as skip_syncs
    from triton_ops.base.files import sweep as sweep
    from triton_ops.base.files import whole_lines as whole_lines
    from triton_ops.base.files import writable as writable
    from triton_ops.base.folders import TemporaryFolder as TemporaryFolder
    from triton_ops.base.folders import code_folder as code_folder
    from triton_ops.base.folders import private_folder as private_folder
    from triton_ops.base.locks import ForkSafeLock as ForkSafeLock
    from triton_ops.base.locks import locked as locked
    from triton_ops.base.named_files import read_named as read_named
    from triton_ops.base.named_files import write_named as write_named
    from triton_ops.base.optional import available as available
    from triton_ops.base.optional import base_class as base_class
    from triton_ops.base.optional import import_in_order as import_in_order
    from triton_ops.base.optional import require as require
    from triton_ops.base.page import PageParts as PageParts
    from triton_ops.base.page import assembled as assembled
    from triton_ops.base.page import data_script as data_script
    from triton_ops.base.page import json_text as json_text
    from triton_ops.base.page import part as part
    from triton_ops.base.proc import affinity_cpus as affinity_cpus
    from triton_ops.base.proc import cpu_threads as cpu_threads
    from triton_ops.base.proc import usable_cpus as usable_cpus
    from triton_ops.base.ranges import Count as Count
    from triton_ops.base.ranges import Extent as Extent
    from triton_ops.base.ranges import Milliseconds as Milliseconds
    from triton_ops.base.ranges import Nested as Nested
    from triton_ops.base.ranges import NotNegative as NotNegative
    from triton_ops.base.ranges import Plain as Plain
    from triton_ops.base.ranges import Seconds as Seconds
    from triton_ops.base.ranges import is_positive as is_positive
    from triton_ops.base.sealed_json import CHECKSUM as CHECKSUM
    from triton_ops.base.sealed_json import DamagedError as DamagedError
    from triton_ops.base.sealed_json import bounded as bounded
    from triton_ops.base.sealed_json import canonical_json as canonical_json
    from triton_ops.base.sealed_json import fingerprint as fingerprint
    from triton_ops.base.sealed_json import parsed as parsed
    from triton_ops.base.sealed_json import sealed as sealed
    from triton_ops.base.sealed_json import storable as storable
    from triton_ops.base.sealed_json import unsealed as unsealed
    from triton_ops.base.text import counted as counted
    from triton_ops.base.text import escaped as escaped
    from triton_ops.base.text import gain_text as gain_text
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
