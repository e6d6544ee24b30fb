"""The files around the package: they agree with each other, and imports run one way."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from importlib.util import resolve_name
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# What conda-forge calls a package, where it has another name for it. Its `graphviz` is the program itself.
CONDA_NAMES = {"graphviz": "python-graphviz", "graphviz-pure": "graphviz", "matplotlib": "matplotlib-base"}
CONDA_EXTRAS = {"nbval"}  # from the extra `test`: teachers check notebooks

# A layer may import lower layers, and of its own layer only itself.
LAYERS = {"core": 0, "explore": 1, "real": 1, "engines": 2, "show": 2, "course": 3, "panels": 4, "cli": 4}


def requirements(*extras: str) -> dict[str, Requirement]:
    lines = [*PROJECT["dependencies"]]
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    return {canonicalize_name(parsed.name): parsed for parsed in map(Requirement, lines)}


def lowest(requirement: Requirement) -> str | None:
    return next((part.version for part in requirement.specifier if part.operator == ">="), None)


def supported_pythons() -> list[str]:
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"])
    return [match[1] for match in found if match]


WITH_JUPYTER = {"jupyter_client", "jupyter_core"}  # parts of every kernel and server: asked for with those


def undeclared(sources: Iterable[Path], wanted: Iterable[str]) -> set[str]:
    """Return the modules that sources import and no wanted distribution brings; a neighbour is nobody's."""
    sources, brought = list(sources), packages_distributions()
    found = {
        name.split(".")[0]
        for path in sources
        for name in imported_modules(path.read_text(encoding="utf-8"), "labkit.x.y")
    }
    own = (
        WITH_JUPYTER
        | {"my_own_keys"}
        | {part for path in sources for part in (path.stem, path.parent.name)}
        | {"labkit"}
    )
    return {
        name
        for name in found - own - sys.stdlib_module_names
        if not {canonicalize_name(one) for one in brought.get(name, ())} & set(wanted)
    }


def test_what_the_package_and_its_tests_import_is_asked_for_by_name():
    package, tests = (ROOT / "labkit").rglob("*.py"), (ROOT / "tests").rglob("*.py")
    assert undeclared(package, requirements()) == set()
    tests = [path for path in tests if "benchmarks" not in path.parts]
    assert undeclared(tests, requirements("test")) == set()
    assert undeclared([Path(__file__)], requirements()) == {"pytest", "yaml", "packaging"}


# --- environment.yml ------------------------------------------------------------------------------------


def environment_differences(wanted: dict[str, Requirement], entries: Iterable[object]) -> list[str]:
    """Say how the conda entries differ from the wanted requirements in names or lower bounds."""
    lines = [Requirement(entry) for entry in entries if isinstance(entry, str)]
    listed = {line.name: line for line in lines}
    problems = [] if len(listed) == len(lines) else ["a package is listed twice"]
    for name, requirement in wanted.items():
        conda_name = CONDA_NAMES.get(name, name)
        if conda_name not in listed:
            problems.append(f"{conda_name} is missing")
        elif conda_name != "graphviz" and lowest(listed[conda_name]) != lowest(requirement):
            problems.append(f"{conda_name}: {listed[conda_name].specifier} is not {requirement.specifier}")
    known = {CONDA_NAMES.get(name, name) for name in wanted} | {"python", "pip"}
    return problems + [f"{name} is not in pyproject.toml" for name in listed if name not in known]


def conda_entries() -> list[object]:
    entries: list[object] = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    return entries


def test_the_conda_environment_asks_for_what_the_project_asks_for():
    extras = {name: parsed for name, parsed in requirements("test").items() if name in CONDA_EXTRAS}
    assert environment_differences(requirements() | extras, conda_entries()) == []


def test_the_conda_environment_installs_the_checkout_and_a_supported_python():
    assert {"pip": ["-e ."]} in conda_entries()
    python = Requirement(next(e for e in conda_entries() if isinstance(e, str) and e.startswith("python>")))
    candidates = [f"3.{minor}" for minor in range(30)]
    assert list(python.specifier.filter(candidates)) == supported_pythons()


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([], "python-graphviz is missing"),
        (["python-graphviz>=0.19"], "python-graphviz: >=0.19 is not >=0.20"),
        (["python-graphviz>=0.20", "left-pad"], "left-pad is not in pyproject.toml"),
        (["python-graphviz>=0.20", "python-graphviz>=0.20"], "a package is listed twice"),
    ],
)
def test_a_conda_environment_out_of_step_is_noticed(entries: list[object], problem: str):
    assert environment_differences({"graphviz": Requirement("graphviz>=0.20")}, entries) == [problem]


# --- requirements.lock ----------------------------------------------------------------------------------


def lock_problems(wanted: dict[str, Requirement], lock: str) -> list[str]:
    """Say which lines of a lock are not exact versions by name, and which requirements it does not meet."""
    lines = [line for line in lock.splitlines() if line and not line.startswith("#")]
    problems = [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.+!]+( ; .+)?", line)]
    locked: dict[str, list[str]] = {}
    for parsed in (Requirement(line) for line in lines if line not in problems):
        locked.setdefault(parsed.name, []).extend(part.version for part in parsed.specifier)
    for name, requirement in wanted.items():
        versions = locked.get(name, [])
        if not versions or not all(requirement.specifier.contains(v, prereleases=True) for v in versions):
            problems.append(f"{requirement}: locked {versions}")
    return problems


def test_the_lock_meets_every_requirement_with_exact_versions_and_no_address():
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert lock_problems(requirements("test"), lock) == []
    assert "make lock" in lock.splitlines()[1]


@pytest.mark.parametrize("lock", ["", "pytest==8.2.9", "pytest>=8.3", "pytest @ https" + "://host/pytest.whl"])
def test_a_lock_that_is_wrong_is_noticed(lock: str):
    assert lock_problems({"pytest": Requirement("pytest>=8.3")}, lock)


# --- what the other files say ---------------------------------------------------------------------------


def test_the_changelog_has_this_version_and_names_the_supported_pythons():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    release = changelog.partition(f"## [{PROJECT['version']}]")[2].partition("\n## ")[0]
    named = re.search(r"Supported Pythons: (.+)\.$", release, re.MULTILINE)
    assert named is not None
    assert named[1].split(", ") == supported_pythons()
    assert PROJECT["requires-python"] == f">={supported_pythons()[0]}"


def test_the_licence_is_the_one_that_the_package_declares():
    assert PROJECT["license"] == "BSD-3-Clause"
    licence = " ".join((ROOT / "LICENSE").read_text(encoding="utf-8").split())
    assert licence.startswith("BSD 3-Clause License Copyright (c) 2026, Recovery Lab contributors")
    assert "3. Neither the name of the copyright holder nor the names of its contributors" in licence


def test_the_package_is_marked_as_typed():
    assert (ROOT / "labkit" / "py.typed").is_file()


# --- no addresses of registries, no paths of machines ---------------------------------------------------

HOSTS = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "npm" + "js.org",
    "deb." + "debian.org",
    "anaconda" + ".org",
]
HOME_PATHS = re.compile(r"(?<![\w.])/(root|home|Users)/\w|[A-Z]:\\+Users\\")


def places_named_in(text: str, checkout: str) -> list[str]:
    """Return the registry hosts and the paths of one machine that `text` names."""
    found = [host for host in HOSTS if host in text] + [match[0] for match in HOME_PATHS.finditer(text)]
    return found + ([checkout] if checkout.count("/") > 1 and checkout in text else [])


def tracked_files() -> list[Path]:
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(listing, capture_output=True, check=True, encoding="utf-8").stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):  # not a git checkout
        skip = {".venv", ".git", "__pycache__"}
        return [path for path in ROOT.rglob("*") if path.is_file() and not skip & set(path.parts)]
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_no_file_names_a_registry_host_or_a_path_of_one_machine():
    found = {}
    for path in tracked_files():
        named = places_named_in(path.read_text(encoding="utf-8", errors="replace"), ROOT.as_posix())
        if named:
            found[path.relative_to(ROOT).as_posix()] = named
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "see " + HOSTS[0],
        "in /ro" + "ot/lab",
        "C:\\Us" + "ers\\ada",
        '"/ho' + 'me/ada/lab"',
        "/srv/check/out/x",
    ],
)
def test_a_named_place_is_noticed(text: str):
    assert places_named_in(text, "/srv/check/out")


# --- imports --------------------------------------------------------------------------------------------


def imported_modules(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Yield every module that a source imports, inside functions too; of `from a import b`, also `a.b`."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else str(node.module)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def layer_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else "core"


def wrong_imports(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Return the modules of labkit that `module` must not import: higher layers, or neighbours in its own."""
    own = layer_of(module)
    targets = (m for m in imported_modules(source, module, is_package=is_package) if m.split(".")[0] == "labkit")
    return sorted({m for m in targets if layer_of(m) != own and LAYERS[layer_of(m)] >= LAYERS[own]})


def package_modules() -> list[tuple[Path, str]]:
    found = []
    for path in sorted((ROOT / "labkit").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append((path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)))
    return found


def test_imports_run_one_way():
    wrong = {}
    for path, module in package_modules():
        source = path.read_text(encoding="utf-8")
        found = wrong_imports(source, module, is_package=path.name == "__init__.py")
        if found:
            wrong[module] = found
    assert wrong == {}


def test_every_subpackage_has_its_layer():
    subpackages = {path.parent.name for path, _ in package_modules() if path.parent.parent == ROOT / "labkit"}
    assert subpackages <= LAYERS.keys()


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("labkit.store", "from labkit.explore import world", ["labkit.explore", "labkit.explore.world"]),
        ("labkit.store", "def f():\n    import labkit.show.tables", ["labkit.show.tables"]),
        ("labkit.store", "from . import cli", ["labkit.cli"]),
        ("labkit.explore.world", "from ..real import drill", ["labkit.real", "labkit.real.drill"]),
        ("labkit.show.tables", "from labkit.course import checks", ["labkit.course", "labkit.course.checks"]),
        ("labkit.cli.demo", "from labkit.panels import clock", ["labkit.panels", "labkit.panels.clock"]),
        ("labkit.cli.demo", "from labkit.cli import lab\nfrom labkit import store\nimport json", []),
        ("labkit.show.tables", "from ..explore.world import World\nfrom .style import BLUE", []),
    ],
)
def test_an_import_against_the_direction_is_noticed(module: str, source: str, wrong: list[str]):
    assert wrong_imports(source, module) == wrong


def test_a_package_resolves_its_own_relative_imports():
    assert wrong_imports("from .show import x", "labkit", is_package=True) == ["labkit.show", "labkit.show.x"]


HEAVY = {"matplotlib", "numpy", "PIL", "graphviz", "ipywidgets", "IPython", "jupyter_client", "tornado", "uvicorn"}
HEAVY |= {"cloudpickle", "greenlet", "httpx", "starlette", "tqdm"}


@pytest.mark.parametrize("module", ["labkit", "labkit.cli", "labkit.cli.lab"])
def test_importing_is_light(module: str):
    code = f"import {module}, sys; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []
