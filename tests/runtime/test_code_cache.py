import tempfile
from pathlib import Path

import pytest

from pytest_transferbench.runtime import code_cache


def test_code_is_made_once(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return b"code"

    first, second = (code_cache.code_object(("source", "-O3"), make, tmp_path) for _ in range(2))
    assert first == second
    assert first.read_bytes() == b"code"
    assert len(made) == 1


def test_parts_do_not_run_into_each_other(tmp_path: Path) -> None:
    keys = [("ab", "c"), ("a", "bc"), ("abc",), ("a", "b", "c"), ("abc", "")]
    assert len({code_cache.code_object(key, lambda: b"code", tmp_path) for key in keys}) == len(keys)


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> bytes:
        raise RuntimeError("does not compile")

    with pytest.raises(RuntimeError, match="does not compile"):
        code_cache.code_object(("source",), fail, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_half_written_file_never_bears_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        code_cache.code_object(("source",), lambda: b"code", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = code_cache.cache_folder()
    assert folder == tmp_path / "pytest-transferbench" / "code"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="may be written by others"):
        code_cache.cache_folder()


def test_a_home_that_cannot_be_written_has_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    assert code_cache.cache_folder().parent.parent == tmp_path


def test_a_relative_cache_folder_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert code_cache.cache_folder() == tmp_path / ".cache" / "pytest-transferbench" / "code"
