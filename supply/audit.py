"""Whether a version that is installed by the locks has a known vulnerability, and a bill of materials of the package.

    python supply/audit.py [--output build/audit]

Advisories are asked for by pip-audit, of two services in turn; the bill of materials is written by cyclonedx-bom: all that
`pip install attnfaith` brings on any system, torch's packages for GPUs among it, with the hashes of its files.

Exit code 0: every version was looked up, and nothing is known against any. 1: something is known. 2: wrong use, or no bill
of materials could be made. 3: nothing is known, but some versions, or all, could not be looked up: that is no clean audit,
and the last line says NOT AUDITED.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path


FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
INSTALLED = ("base", "torch")
"""Locks of what the package brings."""
AUDITED = (*INSTALLED, "test", "docs", "tools")
SERVICES = ("pypi", "osv")
CLEAN, KNOWN, NOT_AUDITED = 0, 1, 3
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.M)
MARKER = re.compile(r" ; .*?(?= \\$)", re.M)
NESTED = re.compile(r"^-r .*\n", re.M)


@dataclass
class Answer:
    """What one service says of pinned versions.

    known: one line for each vulnerability. looked_up: the packages that the service knows. why: what it says of the others.
    """

    known: list[str] = field(default_factory=list)
    looked_up: set[str] = field(default_factory=set)
    why: str = ""


def pinned(names=INSTALLED) -> str:
    """Locks as one, of every system: a package for Windows is looked up on Linux too."""
    return "".join(MARKER.sub("", NESTED.sub("", (FOLDER / f"{name}.txt").read_text(encoding="utf-8"))) for name in names)


def name_of(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def read_answer(report: Path, said: str) -> Answer:
    """What pip-audit wrote. It ends with success where a service does not know a package: such are not looked up here."""
    try:
        packages = json.loads(report.read_text(encoding="utf-8"))["dependencies"]
    except (OSError, ValueError, KeyError, TypeError):
        return Answer(why=(said.strip().splitlines() or ["it said nothing"])[-1])
    answer = Answer()
    for package in packages:
        if "vulns" not in package:
            answer.why = package.get("skip_reason", "no reason is given")
            continue
        answer.looked_up.add(name_of(package["name"]))
        for one in package["vulns"]:
            mended = ", ".join(one.get("fix_versions") or ()) or "no version"
            answer.known.append(f"{package['name']} {package['version']}: {one['id']}, mended in {mended}")
    return answer


def ask(service: str, lock: Path, report: Path) -> Answer:
    """Ask one service about all versions of a lock."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(lock), "--disable-pip", "--require-hashes"]
    command += ["--vulnerability-service", service, "--format", "json", "--output", str(report), "--progress-spinner", "off"]
    done = subprocess.run(command, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    return read_answer(report, done.stderr)


def verdict(wanted: set[str], answers: dict[str, Answer]) -> tuple[int, list[str]]:
    """The exit code, and what is said, of all answers together: a version counts as looked up where one service knows it."""
    unseen = wanted.difference(*(answer.looked_up for answer in answers.values()))
    known = sorted({line for answer in answers.values() for line in answer.known})
    lines = [f"known: {line}" for line in known]
    if unseen:
        lines += [f"{service}: {answer.why}" for service, answer in answers.items() if answer.why]
        few = ", ".join(sorted(unseen)[:5]) + (", …" if len(unseen) > 5 else "")
        lines.append(f"NOT AUDITED: {len(unseen)} of {len(wanted)} versions could not be looked up ({few})")
    else:
        lines.append(f"audited: {len(wanted)} versions, {len(known)} known vulnerabilities")
    return KNOWN if known else NOT_AUDITED if unseen else CLEAN, lines


def version() -> str:
    """Of attnfaith, read and not imported: it need not be installed here."""
    tree = ast.parse((ROOT / "src" / "attnfaith" / "__init__.py").read_text(encoding="utf-8"))
    given = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}
    return ast.literal_eval(given["__version__"])


def write_bill(target: Path, folder: Path) -> int:
    """CycloneDX JSON of what the package brings, checked against its schema; the number of components."""
    project = folder / "pyproject.toml"
    project.write_text(
        f'[project]\nname = "attnfaith"\nversion = "{version()}"\nlicense = {{text = "Apache-2.0"}}\n', encoding="utf-8"
    )
    lock = folder / "installed.txt"
    lock.write_text(pinned(), encoding="utf-8")
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", str(lock), "--pyproject", str(project)]
    command += ["--mc-type", "library", "--output-reproducible", "--validate", "--output-file", str(target)]
    done = subprocess.run(command)
    if done.returncode:
        print("error: no bill of materials was written (above)", file=sys.stderr)
        sys.exit(2)
    return len(json.loads(target.read_text(encoding="utf-8"))["components"])


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "audit", help="folder of what is written")
    folder = parser.parse_args(arguments).output
    folder.mkdir(parents=True, exist_ok=True)
    text = pinned(AUDITED)
    wanted = {name_of(name) for name, _ in PINNED.findall(text)}
    answers = {}
    with tempfile.TemporaryDirectory() as apart:
        count = write_bill(folder / "bill_of_materials.json", Path(apart))
        print(f"bill of materials: {count} packages, in {folder / 'bill_of_materials.json'}")
        lock = Path(apart) / "all.txt"
        lock.write_text(text, encoding="utf-8")
        for service in SERVICES:
            report = folder / f"advisories_{service}.json"
            report.unlink(missing_ok=True)  # an answer of another day is none
            answers[service] = ask(service, lock, report)
            if wanted <= answers[service].looked_up:
                break
    code, lines = verdict(wanted, answers)
    print(*lines, sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
