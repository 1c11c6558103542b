"""Records of finished tunes, and the stores that keep them. Nothing here imports torch."""

from triton_ops.cache.bundle import Imported as Imported
from triton_ops.cache.bundle import export_records as export_records
from triton_ops.cache.bundle import import_records as import_records
from triton_ops.cache.directory import DirectoryStore as DirectoryStore
from triton_ops.cache.key import Key as Key
from triton_ops.cache.layered import LayeredStore as LayeredStore
from triton_ops.cache.layered import open_store as open_store
from triton_ops.cache.lock_entry import LockedDevice as LockedDevice
from triton_ops.cache.lock_entry import LockEntry as LockEntry
from triton_ops.cache.lock_entry import Measured as Measured
from triton_ops.cache.lock_entry import Origin as Origin
from triton_ops.cache.lockfile import Lockfile as Lockfile
from triton_ops.cache.lockfile import Pinned as Pinned
from triton_ops.cache.lockfile import accept_edits as accept_edits
from triton_ops.cache.lockfile import read_lockfile as read_lockfile
from triton_ops.cache.lockfile import write_lockfile as write_lockfile
from triton_ops.cache.memory import MemoryStore as MemoryStore
from triton_ops.cache.record import Failure as Failure
from triton_ops.cache.record import Limits as Limits
from triton_ops.cache.record import Record as Record
from triton_ops.cache.record import Timing as Timing
from triton_ops.cache.record import Verified as Verified
from triton_ops.cache.store import RECORDS as RECORDS
from triton_ops.cache.store import Codec as Codec
from triton_ops.cache.store import Store as Store
