"""Gates of DiffMask that nobody trained, for tests of what is made of gates."""

import atexit
import shutil
import tempfile
from pathlib import Path

import numpy as np

from attnfaith.importance.diffmask import Gates, save_gates
from attnfaith.subjects import opened


FOLDER = Path(tempfile.mkdtemp(prefix="attnfaith-gates-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def untrained(model, batch) -> str:
    """The path of gates of a model, as they are drawn but for their shift: about half of them are open."""
    subject, batch = opened(model, batch)
    path = FOLDER / f"{subject.digest()[:12]}.safetensors"
    if not path.is_file():
        gates = Gates.of(subject, batch, 0)
        for number, gate in enumerate(gates.gates):
            gate.shift.data.fill_(float(np.random.default_rng(number).normal()))
        save_gates(gates, path, {"model": subject.digest(), "settings": {}})
    return str(path)
