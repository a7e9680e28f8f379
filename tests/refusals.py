"""What every refusal has in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refusal(call: Callable[..., object], *arguments: Any, **keywords: Any) -> str:
    """Return what ``call`` says when it refuses its arguments: a ``ValueError`` of exactly one line."""
    with pytest.raises(ValueError, match=r"\S") as caught:
        call(*arguments, **keywords)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 400
    return message


def refuses(call: Callable[..., object], *arguments: Any) -> bool:
    """Tell whether ``call`` refuses its arguments, and hold the refusal to one line."""
    try:
        call(*arguments)
    except ValueError:
        return bool(refusal(call, *arguments))
    return False
