"""Files and folders that several processes and users may share: how they are opened, written and locked.

This is the one place where the package opens files. No function here follows a link that another user could have
placed, waits on anything but a regular file, or deletes a file that this package did not write.
"""

from triton_ops._files.appending import AppendedFile as AppendedFile
from triton_ops._files.appending import append_at as append_at
from triton_ops._files.appending import append_line as append_line
from triton_ops._files.guard import Guard as Guard
from triton_ops._files.locks import locked as locked
from triton_ops._files.named import read_named as read_named
from triton_ops._files.named import unpacked as unpacked
from triton_ops._files.named import write_named as write_named
from triton_ops._files.opening import folder_within as folder_within
from triton_ops._files.opening import is_file as is_file
from triton_ops._files.opening import is_folder as is_folder
from triton_ops._files.private import code_folder as code_folder
from triton_ops._files.private import private_folder as private_folder
from triton_ops._files.reading import holds as holds
from triton_ops._files.reading import last_line as last_line
from triton_ops._files.reading import read_file as read_file
from triton_ops._files.reading import whole_lines as whole_lines
from triton_ops._files.syncing import skip_syncs as skip_syncs
from triton_ops._files.temporary import TemporaryFolder as TemporaryFolder
from triton_ops._files.temporary import make_temporary as make_temporary
from triton_ops._files.temporary import own_temporary_folder as own_temporary_folder
from triton_ops._files.temporary import remove_temporary as remove_temporary
from triton_ops._files.writing import atomic_write as atomic_write
from triton_ops._files.writing import check_home as check_home
from triton_ops._files.writing import ensure_folder as ensure_folder
from triton_ops._files.writing import make_folders as make_folders
from triton_ops._files.writing import sweep as sweep
from triton_ops._files.writing import writable as writable
