"""Which line of the user's source an instruction of PTX comes from.

Facts used, of LLVM's PTX: `.file` numbers the files, `.loc` names the place of what follows, and the comment behind it
the places that the function was inlined at: `// standard.py:293:36 @[ kernel.py:34:22 ]`.
"""

from __future__ import annotations

import re

_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_PLACE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_FRAME = re.compile(r"([^\s@\[\]/]+):(\d+):\d+")
_TRITONS = "/triton/language/"


class Places:
    """Follows the lines of a PTX text.

    Attributes:
        here: The file's name and the line of the last place, of the innermost function that is not Triton's own.
    """

    def __init__(self, ptx: str) -> None:
        self.here = ("", 0)
        files = {number: (name or folder, folder) for number, folder, name in _FILE.findall(ptx)}
        self._names = {number: name.rpartition("/")[2] for number, (name, _) in files.items()}
        own = [number for number, both in files.items() if any(_TRITONS in f"{part}/" for part in both)]
        self._tritons = {self._names[number] for number in own}

    def follow(self, line: str) -> bool:
        """Take a line in; whether it names a place."""
        found = _PLACE.match(line)
        if found is None:
            return False
        frames = [(self._names.get(found[1], ""), int(found[2]))]
        frames += [(name, int(number)) for name, number in _FRAME.findall(line.partition("@[")[2])]
        self.here = next((frame for frame in frames if frame[0] not in self._tritons), frames[-1])
        return True
