"""Shared helpers assert too: their failures deserve pytest's full account."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.engine.proof", "tests.refusals")
