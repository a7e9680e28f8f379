import subprocess
import sys

import pytest

import hipkernels


def test_every_source_comes_with_the_portability_header() -> None:
    assert "copy" in hipkernels.names()
    for name in hipkernels.names():
        text = hipkernels.source(name)
        assert text.startswith('#line 1 "portability.h"\n')
        header, _, body = text.partition(f'\n#line 1 "{name}.hip"\n')
        assert "TB_KERNEL" in header
        assert "TB_KERNEL" in body


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"^no kernel source '\.\./secret'; there are .*copy"):
        hipkernels.source("../secret")


def test_nothing_of_the_plugin_is_imported() -> None:
    code = "import sys, hipkernels; hipkernels.source('copy'); print([m for m in sys.modules if 'transferbench' in m])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
