"""Writing one file whole: the old one stays until the new one is complete."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: str | os.PathLike, content: bytes) -> Path:
    """Write `content` under a temporary name in the same folder, then rename; returns the path.

    Raises OSError where it cannot be written; the old file then stays and the temporary one is removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)  # mkstemp makes files only their owner can read; a report is for readers
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
