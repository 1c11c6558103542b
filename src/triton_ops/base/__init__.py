"""Files, locks, checksums, fingerprints, optional packages and CPUs, on which every room stands."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.base.code_folders import CodeFolder as CodeFolder
    from triton_ops.base.code_folders import TemporaryFolder as TemporaryFolder
    from triton_ops.base.files import AppendedFile as AppendedFile
    from triton_ops.base.files import NamedFile as NamedFile
    from triton_ops.base.files import SealedFile as SealedFile
    from triton_ops.base.files import StoredFile as StoredFile
    from triton_ops.base.folders import Folder as Folder
    from triton_ops.base.folders import ForkSafeLock as ForkSafeLock
    from triton_ops.base.folders import OwnFile as OwnFile
    from triton_ops.base.folders import at_fork as at_fork
    from triton_ops.base.folders import cached_property as cached_property
    from triton_ops.base.host import Host as Host
    from triton_ops.base.host import Process as Process
    from triton_ops.base.host import available as available
    from triton_ops.base.host import bar_console as bar_console
    from triton_ops.base.host import import_in_order as import_in_order
    from triton_ops.base.host import installed_version as installed_version
    from triton_ops.base.host import is_as_published as is_as_published
    from triton_ops.base.host import require as require
    from triton_ops.base.plain import BoundedDict as BoundedDict
    from triton_ops.base.plain import Count as Count
    from triton_ops.base.plain import DamagedError as DamagedError
    from triton_ops.base.plain import Extent as Extent
    from triton_ops.base.plain import Frozen as Frozen
    from triton_ops.base.plain import Nested as Nested
    from triton_ops.base.plain import NotNegative as NotNegative
    from triton_ops.base.plain import Plain as Plain
    from triton_ops.base.plain import Sealed as Sealed
    from triton_ops.base.plain import canonical_json as canonical_json
    from triton_ops.base.plain import fingerprint as fingerprint
    from triton_ops.base.plain import is_positive as is_positive
    from triton_ops.base.texts import counted as counted
    from triton_ops.base.texts import escaped as escaped
    from triton_ops.base.texts import excerpt as excerpt
    from triton_ops.base.texts import gain_text as gain_text
    from triton_ops.base.texts import inform as inform
    from triton_ops.base.texts import storable as storable
    from triton_ops.base.texts import warn as warn
    from triton_ops.base.texts import warn_once as warn_once
