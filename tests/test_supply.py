"""Locks hold what constraints.txt pins, with hashes; an audit that could not look is not a clean one."""

import configparser
import importlib.metadata
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement


ROOT = Path(__file__).parents[1]
SUPPLY = ROOT / "supply"


@pytest.fixture(scope="module")
def audit():
    specification = importlib.util.spec_from_file_location("supply_audit", SUPPLY / "audit.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules["supply_audit"] = module  # where its dataclasses look for themselves
    specification.loader.exec_module(module)
    yield module
    del sys.modules["supply_audit"]


def entries(name):
    """Package -> (version, hashes) of one lock, without those that it takes from another."""
    text = (SUPPLY / f"{name}.txt").read_text(encoding="utf-8")
    found = {}
    for entry in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.M)[1:]:
        package, version = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", entry).groups()
        assert package not in found, package
        found[normal(package)] = version, re.findall(r"--hash=sha256:([0-9a-f]{64})\b", entry)
    return found


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


@pytest.mark.parametrize("lock", ["base", "test", "docs", "torch", "tools"])
def test_every_version_has_hashes(lock):
    found = entries(lock)
    assert found and all(hashes and len(set(hashes)) == len(hashes) for _, hashes in found.values())


@pytest.mark.parametrize("lock", ["base", "test", "docs"])
def test_locks_are_the_constraints(lock):
    """A pin that was changed in one place alone is seen: `make locks`."""
    pinned = constraints()
    assert {name: pinned.get(name) for name in entries(lock)} == {
        name: version for name, (version, _) in entries(lock).items()
    }


def test_torch_is_pinned_apart():
    """Its builds have hashes of their own, so no other lock holds it or what only its build for GPUs brings."""
    assert entries("torch")["torch"][0] == constraints()["torch"]
    others = set().union(*(entries(name) for name in ("base", "test", "docs")))
    assert not {name for name in others if re.fullmatch("torch|triton|(nvidia|cuda)-.*", name)} and len(others) > 150


def needed(requirements):
    """Names of what requirements bring here, by what installed packages say of themselves."""
    names, left = set(), [Requirement(text) for text in requirements]
    while left:
        requirement = left.pop()
        extras = requirement.extras or {""}
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            continue
        key = normal(requirement.name), tuple(sorted(requirement.extras))
        if key in names:
            continue
        names.add(key)
        for text in importlib.metadata.requires(requirement.name) or ():
            further = Requirement(text)
            if further.marker is None or any(further.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                further.marker = None
                left.append(further)
    return {name for name, _ in names}


def test_the_base_lock_is_all_that_the_package_brings():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    wanted = needed(setup["options"]["install_requires"].split("\n")[1:])
    of_torch = {name for name in wanted if re.fullmatch("torch|triton|(nvidia|cuda)-.*", name)}
    assert {"torch", "transformers", "mpmath"} <= wanted and wanted - of_torch <= set(entries("base"))
    assert not {"pytest", "matplotlib", "gradio", "snakemake"} & {*wanted, *entries("base")}


def answer(audit, tmp_path, packages, said=""):
    report = tmp_path / "report.json"
    if packages is not None:
        report.write_text(
            packages if isinstance(packages, str) else json.dumps({"dependencies": packages}), encoding="utf-8"
        )
    return audit.read_answer(report, said)


SEEN = {"name": "Some_package", "version": "1.0", "vulns": []}
BAD = {"name": "bad", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1", "3.0"]}]}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found and could not be audited: unknown (1.0)"}


@pytest.mark.parametrize(
    ("packages", "code", "last"),
    [
        ([SEEN], 0, "audited: 1 versions, 0 known vulnerabilities"),
        ([SEEN, BAD], 1, "audited: 2 versions, 1 known vulnerabilities"),
        ([SEEN, UNKNOWN], 3, "NOT AUDITED: 1 of 2 versions could not be looked up (unknown)"),
        ([BAD, UNKNOWN], 1, "NOT AUDITED: 1 of 2 versions could not be looked up (unknown)"),
        ([UNKNOWN], 3, "NOT AUDITED: 1 of 1 versions could not be looked up (unknown)"),
    ],
)
def test_what_an_audit_says(audit, tmp_path, packages, code, last):
    wanted = {audit.name_of(package["name"]) for package in packages}
    given, lines = audit.verdict(wanted, {"one": answer(audit, tmp_path, packages)})
    assert (given, lines[-1]) == (code, last)
    assert ("known: bad 2.0: CVE-1, mended in 2.1, 3.0" in lines) == (BAD in packages)
    assert (f"one: {UNKNOWN['skip_reason']}" in lines) == (UNKNOWN in packages)


@pytest.mark.parametrize("report", [None, "", "{", "[]", '{"other": 1}', []])
def test_no_report_is_no_clean_audit(audit, tmp_path, report):
    """The service was not reached, or the tool broke: whatever its exit code was."""
    given = answer(audit, tmp_path, report, "long story\nthe name of the server is not known\n")
    code, lines = audit.verdict({"a", "b"}, {"one": given})
    assert code == audit.NOT_AUDITED == 3 and lines[-1].startswith("NOT AUDITED: 2 of 2 ")
    assert report == [] or "one: the name of the server is not known" in lines


def test_a_second_service_looks_up_what_the_first_does_not_know(audit, tmp_path):
    first, second = answer(audit, tmp_path, [SEEN, UNKNOWN]), answer(audit, tmp_path, [{**SEEN, "name": "unknown"}])
    wanted = {"some-package", "unknown"}
    assert audit.verdict(wanted, {"one": first, "two": second})[0] == 0
    assert audit.verdict(wanted, {"two": second})[0] == 3


def test_every_pinned_version_is_asked_for(audit):
    """Also those of other systems; each once, and as one version."""
    text = audit.pinned(audit.AUDITED)
    pairs = set(audit.PINNED.findall(text))
    assert len({name for name, _ in pairs}) == len(pairs) and ";" not in text and "-r " not in text
    assert {normal(name) for name, _ in pairs} == set().union(*(entries(name) for name in audit.AUDITED))
    assert {"colorama", "torch", "pytest", "mkdocs", "uv"} <= {name for name, _ in pairs}


def test_the_bill_names_this_version(audit):
    import attnfaith

    assert audit.version() == attnfaith.__version__
