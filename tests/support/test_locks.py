"""The lock of the tests agrees with constraints.txt and setup.cfg."""

import configparser
import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", re.M)


def test_the_lock_agrees_with_what_is_pinned_and_asked_for():
    text = (ROOT / "supply" / "test.txt").read_text(encoding="utf-8")
    locked = {canonicalize_name(name): version for name, version in ENTRY.findall(text)}
    pins = (line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split())
    pinned = {canonicalize_name(name): version for name, version in pins}
    assert locked and locked == {name: pinned.get(name) for name in locked}
    assert len(re.findall(r"^[\w.-]+==", text, re.M)) == len(locked), "every entry has a hash"
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = setup["options.extras_require"]
    chosen = ("captum", "docs", "plots", "study", "test", "translation")
    lines = [setup["options"]["install_requires"], *(extras[name] for name in chosen)]
    asked = [Requirement(line) for line in "\n".join(lines).split("\n") if line]
    names = {canonicalize_name(requirement.name) for requirement in asked} - {"attnfaith"}
    assert names - {*locked} == {"torch"}, "torch has other hashes on each index"
