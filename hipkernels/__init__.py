"""The device code: one source for hiprtc, nvrtc and the emulated node, handed out as text.

Every ``*.hip`` file beside this one is a kernel source; ``portability.h`` comes before each of them, because the
runtime compilers are given a string and no include path.
"""

from __future__ import annotations

from importlib.resources import files


def names() -> tuple[str, ...]:
    """Return the names :func:`source` knows, sorted: ``copy`` for ``copy.hip``."""
    return tuple(
        sorted(entry.name[: -len(".hip")] for entry in files(__name__).iterdir() if entry.name.endswith(".hip"))
    )


def source(name: str) -> str:
    """Return ``portability.h`` followed by ``<name>.hip``; raises ``ValueError`` for a name there is not.

    ``#line`` keeps a compiler's message pointing at the file that a reader can open.
    """
    if name not in names():
        raise ValueError(f"no kernel source {name!r}; there are {', '.join(names()) or 'none'}")
    folder = files(__name__)
    header = folder.joinpath("portability.h").read_text(encoding="utf-8")
    body = folder.joinpath(f"{name}.hip").read_text(encoding="utf-8")
    return f'#line 1 "portability.h"\n{header}\n#line 1 "{name}.hip"\n{body}'
