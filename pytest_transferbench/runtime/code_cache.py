"""Code objects on disk, so that one compilation serves all processes and all later runs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path


def cache_folder() -> Path:
    """Return our private folder under the user's cache directory, made if need be.

    Where that cannot be written (a container's read-only home) it is a folder of this user under the temporary
    directory. Code is run from here: a folder that others may write, or that another user owns, is refused with
    ``PermissionError``.
    """
    bases = (os.environ.get("XDG_CACHE_HOME", ""), f"{os.environ.get('HOME') or '/nonexistent'}/.cache")
    base = next(Path(base) for base in (*bases, "/nonexistent") if Path(base).is_absolute())
    places = (base / "pytest-transferbench", Path(tempfile.gettempdir()) / f"pytest-transferbench-{os.getuid()}")
    for place in places:
        folder = place / "code"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_dir() and os.access(folder, os.W_OK):
            return _private(folder)
    raise PermissionError(f"no folder for compiled kernels: neither {places[0]} nor {places[1]} can be written")


def _private(folder: Path) -> Path:
    state = folder.stat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise PermissionError(f"{folder} may be written by others, and code is run from it: chmod go-w or remove it")
    return folder


def code_object(key_parts: Sequence[str], make: Callable[[], bytes], folder: Path) -> Path:
    """Return the file that holds what ``make`` returns for these parts, calling it only if there is none.

    The parts are joined by their lengths, so that no two lists give one key. The file appears whole or not at all:
    processes that compile the same thing at the same time replace each other's equal bytes.
    """
    digest = hashlib.sha256()
    for part in key_parts:
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode() + encoded)
    path = folder / f"{digest.hexdigest()}.co"
    if path.exists():
        return path
    code = make()
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(code)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
