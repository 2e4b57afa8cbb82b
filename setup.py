"""Ship catalogues and notebooks in the wheel, from where they stand in the repository."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithShipped(build_py):
    """Copy catalogues and notebooks into the package; an editable install reads them from the checkout."""

    def run(self) -> None:
        """Build the package."""
        super().run()
        if not self.editable_mode:
            for file in (*Path("params/metrics").glob("*.yaml"), *Path("notebooks").glob("*.ipynb")):
                target = Path(self.build_lib, "buildcompare/shipped", file)
                target.parent.mkdir(parents=True, exist_ok=True)
                self.copy_file(str(file), str(target))


setup(cmdclass={"build_py": BuildWithShipped})
