"""Records, lockfiles, run logs, misses and the quarantine: all that is kept of tunes, and its look-up."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.records.lock_entry import EntryOrigin as EntryOrigin
    from triton_ops.records.lock_entry import LockedDevice as LockedDevice
    from triton_ops.records.lock_entry import LockedTiming as LockedTiming
    from triton_ops.records.lock_entry import LockEntry as LockEntry
    from triton_ops.records.lock_entry import OriginKind as OriginKind
    from triton_ops.records.lockfile import FollowedLockfile as FollowedLockfile
    from triton_ops.records.lockfile import Lockfile as Lockfile
    from triton_ops.records.lockfile import LockfileInUse as LockfileInUse
    from triton_ops.records.lockfile import share_lockfile as share_lockfile
    from triton_ops.records.lockfile import winners_of as winners_of
    from triton_ops.records.misses import Miss as Miss
    from triton_ops.records.misses import Misses as Misses
    from triton_ops.records.pinning import LeftOut as LeftOut
    from triton_ops.records.pinning import LockPlan as LockPlan
    from triton_ops.records.pinning import lock_of as lock_of
    from triton_ops.records.pinning import updated as updated
    from triton_ops.records.recalling import kernel_names as kernel_names
    from triton_ops.records.recalling import matching as matching
    from triton_ops.records.recalling import may_have_records as may_have_records
    from triton_ops.records.recalling import recall as recall
    from triton_ops.records.recalling import recalled as recalled
    from triton_ops.records.recalling import store_in as store_in
    from triton_ops.records.record import NotedCall as NotedCall
    from triton_ops.records.record import Record as Record
    from triton_ops.records.record import Timing as Timing
    from triton_ops.records.record import time_now as time_now
    from triton_ops.records.run_log import Finalist as Finalist
    from triton_ops.records.run_log import Head as Head
    from triton_ops.records.run_log import Preview as Preview
    from triton_ops.records.run_log import Resumed as Resumed
    from triton_ops.records.run_log import Run as Run
    from triton_ops.records.run_log import RunLog as RunLog
    from triton_ops.records.run_log import TrialOrigin as TrialOrigin
    from triton_ops.records.run_log import read_head as read_head
    from triton_ops.records.runs import Quarantine as Quarantine
    from triton_ops.records.runs import Runs as Runs
    from triton_ops.records.store import RECORDS as RECORDS
    from triton_ops.records.store import Codec as Codec
    from triton_ops.records.store import DirectoryStore as DirectoryStore
    from triton_ops.records.store import LayeredStore as LayeredStore
    from triton_ops.records.store import MemoryStore as MemoryStore
    from triton_ops.records.store import Store as Store
    from triton_ops.records.store import check_kind as check_kind
    from triton_ops.records.store import open_store as open_store
    from triton_ops.records.store import share_records as share_records
