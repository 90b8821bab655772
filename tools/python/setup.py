"""Takes the native library along that the tree's build has left, so that an installed package finds
it beside itself. Without a build everything but scaling works."""
import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

NAME = "libada_scaling.so"


class WithLibrary(build_py):
    def run(self):
        super().run()
        built = pathlib.Path(__file__).resolve().parents[2] / "build" / NAME
        if built.is_file():
            shutil.copy2(built, pathlib.Path(self.build_lib) / "ada_train" / NAME)


setup(cmdclass={"build_py": WithLibrary})
