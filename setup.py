"""What setup.cfg cannot say: the recipes, which lie at the top of the checkout, are installed inside the package."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


# recipes and studies, published numbers, analyses and their helpers; no results, pictures or benchmarks
SHIPPED = ("*.yaml", "pages.py", "shared.py", "*/*.yaml", "*/published*.csv", "*/**/*.py")


class BuildWithRecipes(build_py):
    """Copies recipes/ to attnfaith/recipes/shipped, where `attnfaith.recipes.files` looks for them.

    An editable install runs from the checkout and finds them there.
    """

    def recipe_files(self) -> dict[str, str]:
        """Where a file is installed: where it lies."""
        installed = Path(self.build_lib) / "attnfaith" / "recipes" / "shipped"
        source = Path("recipes")
        files = {path for pattern in SHIPPED for path in source.glob(pattern)}
        return {str(installed / path.relative_to(source)): str(path) for path in sorted(files)}

    def run(self):
        super().run()
        if not self.editable_mode:
            for target, path in self.recipe_files().items():
                self.mkpath(str(Path(target).parent))
                self.copy_file(path, target, preserve_mode=False)

    def get_source_files(self):
        """What goes into a source distribution."""
        return [*super().get_source_files(), *self.recipe_files().values()]

    def get_outputs(self, include_bytecode=1):
        return [*super().get_outputs(include_bytecode), *([] if self.editable_mode else self.recipe_files())]


setup(cmdclass={"build_py": BuildWithRecipes})
