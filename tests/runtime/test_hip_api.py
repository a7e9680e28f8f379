import sys
from types import ModuleType, SimpleNamespace

import pytest

from pytest_transferbench.runtime import hip_api
from pytest_transferbench.runtime.hip_api import HipApi, HipError

from .fakes import FakeHip, FakeHipProperties, FakeHiprtc, HipCode


@pytest.fixture(params=[7, 10])
def hip(request: pytest.FixtureRequest) -> FakeHip:
    return FakeHip([FakeHipProperties()], generation=request.param)


def test_both_generations_give_the_same_properties(hip: FakeHip) -> None:
    properties = HipApi(hip, FakeHiprtc()).properties(0)
    assert (properties.name, properties.gcn_arch_name) == ("AMD Instinct MI300X", "gfx942:sramecc+:xnack-")
    assert (properties.pci, properties.memory_bytes) == ((0, 5, 0), 206_141_652_992)


def test_an_error_is_looked_at_before_its_outputs(hip: FakeHip) -> None:
    hip.fail["hipExtMallocWithFlags"] = HipCode.hipErrorOutOfMemory
    with pytest.raises(HipError, match=r"^hipErrorOutOfMemory: out of memory$") as caught:
        HipApi(hip, FakeHiprtc()).malloc_with_flags(4096, hip_api.MALLOC_UNCACHED)
    assert (caught.value.call, caught.value.status) == ("hipExtMallocWithFlags", 2)


def test_an_attribute_that_is_not_there_is_none(hip: FakeHip) -> None:
    api = HipApi(hip, FakeHiprtc())
    assert api.attribute("WallClockRate", 0) == 100_000
    assert api.attribute("NotInThisVersion", 0) is None
    assert api.attribute("HostNumaId", 0) is None  # the enumeration has it, the runtime does not answer


def test_compiling_gives_the_code_object_and_lets_the_program_go(hip: FakeHip) -> None:
    compiler = FakeHiprtc(code=b"\x7fELF object")
    assert HipApi(hip, compiler).compile("source", "copy.hip", ("-std=c++17", "-DX=1")) == b"\x7fELF object"
    assert compiler.compiled == [[b"-std=c++17", b"-DX=1"]]
    assert compiler.destroyed == 1


def test_the_compilers_log_is_the_message(hip: FakeHip) -> None:
    compiler = FakeHiprtc(log="copy.hip:3:1: error: unknown type name 'flat'")
    with pytest.raises(HipError, match=r"HIPRTC_ERROR_COMPILATION: copy.hip:3:1: error: unknown type"):
        HipApi(hip, compiler).compile("source", "copy.hip", ())
    assert compiler.destroyed == 1


def test_a_library_that_does_not_open_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unopened() -> None:
        raise RuntimeError("failed to dlopen 'libamdhip64.so': libamdhip64.so: cannot open shared object file")

    package = ModuleType("hip")
    vars(package).update(hip=SimpleNamespace(hipRuntimeGetVersion=unopened), hiprtc=FakeHiprtc())
    monkeypatch.setitem(sys.modules, "hip", package)
    with pytest.raises(ImportError, match=r"libamdhip64.so: cannot open"):
        hip_api.load()
