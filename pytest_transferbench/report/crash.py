"""What pytest prints of a failed item begins with the verdict's word, not with the exception's long name."""

from __future__ import annotations

from typing import Any


def is_verdict(exception: BaseException) -> bool:
    """Tell whether ``exception`` is a failing verdict."""
    from pytest_transferbench.judge import TransferFailure

    return isinstance(exception, TransferFailure)


def lead_with_verdict(longrepr: Any) -> None:
    """Cut the exception's name off pytest's account of a failing verdict, in all of its lines.

    A short summary of 80 columns has room for the verdict and its figure only where they come first. ``longrepr`` is
    that of a report; an account in a form of somebody else's is left alone. Where none of the frames is the user's, the
    verdict is all there is to say.
    """
    # A native traceback is one account; the others are one for each exception that led to the next.
    alone: tuple[Any, Any, None] = getattr(longrepr, "reprtraceback", None), getattr(longrepr, "reprcrash", None), None
    for traceback, crash, _ in getattr(longrepr, "chain", (alone,)):
        if crash is not None:
            crash.message = _cut(crash.message)
        for entry in getattr(traceback, "reprentries", ()):
            lines = [_cut(line) for line in entry.lines]
            if lines != entry.lines:
                entry.lines, traceback.extraline = lines, None


def _cut(text: str) -> str:
    from pytest_transferbench.judge import FAILING

    for word, failure in FAILING.items():
        for name in (f"{failure.__module__}.{failure.__qualname__}", "Failed"):
            text = text.replace(f"{name}: {word}: ", f"{word}: ")
    return text
