"""The build backend of pyproject.toml: scikit-build-core compiles the program with CMake and packs
it beside the Python files, and auditwheel puts the shared libraries that it loads into the wheel
and writes down the oldest manylinux on which the result runs.

The functions are those that PEP 517 and PEP 660 ask of a backend.
"""
import pathlib
import subprocess
import sys
import tempfile

from scikit_build_core import build as _core

get_requires_for_build_editable = _core.get_requires_for_build_editable
get_requires_for_build_sdist = _core.get_requires_for_build_sdist
get_requires_for_build_wheel = _core.get_requires_for_build_wheel
prepare_metadata_for_build_editable = _core.prepare_metadata_for_build_editable
prepare_metadata_for_build_wheel = _core.prepare_metadata_for_build_wheel
build_editable = _core.build_editable
build_sdist = _core.build_sdist


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel into `wheel_directory` and returns its file name."""
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "made"
        repaired = pathlib.Path(folder) / "repaired"
        name = _core.build_wheel(str(made), config_settings, metadata_directory)
        done = subprocess.run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir",
                               str(repaired), str(made / name)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"auditwheel repair {name}:\n{done.stdout}{done.stderr}")
        wheel, = repaired.iterdir()
        pathlib.Path(wheel_directory, wheel.name).write_bytes(wheel.read_bytes())
        return wheel.name
