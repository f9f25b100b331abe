"""Where a training of gates stands after an epoch, in a file: killed, it goes on from there to the same gates."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from attnfaith.files import write_atomically


FORMAT = "attnfaith training of gates 2"


@dataclass(frozen=True)
class State:
    """A training of gates in a file.

    of: what the training is made of, model, settings, seed and texts; a file of another training is not taken.
    """

    path: Path
    of: str

    def write(self, training) -> None:
        """Write a training as it stands after an epoch: whole, or as it was before."""
        _write(self.path, training, self.of)

    def read(self, training) -> bool:
        """Bring a fresh training to where the file says that it stood; False, and nothing is done, where there is no such
        file, it cannot be read, or is of another training.
        """
        return _read(self.path, training, self.of)

    def remove(self) -> None:
        """The training is done."""
        self.path.unlink(missing_ok=True)


def _write(path: Path, training, of: str) -> None:
    tensors = {f"gates.{name}": values for name, values in training.gates.state_dict().items()}
    tensors |= {f"chosen.{name}": values for name, values in (training.chosen_state or {}).items()}
    tensors["multipliers"] = training.multipliers
    optimizer = training.optimizer
    for number, (one, slow) in enumerate(zip(optimizer.parameters, optimizer.slow, strict=True)):
        tensors[f"optimizer.{number}.slow"] = slow
        kept = optimizer.optimizer.state.get(one, {})
        tensors |= {f"optimizer.{number}.{key}": values for key, values in kept.items()}
    tensors["noise"] = training.noise.get_state()
    said = {"format": FORMAT, "of": of, "epoch": training.epoch, "log": training.log, "best": training.best}
    said |= {"chosen": training.chosen, "random": training.random.bit_generator.state}
    said |= {"steps": optimizer.steps}
    tensors = {name: values.detach().cpu().contiguous().clone() for name, values in tensors.items()}
    write_atomically(path, save(tensors, {"attnfaith": json.dumps(said)}))


@torch.no_grad()
def _read(path: Path, training, of: str) -> bool:
    try:
        with safe_open(path, "pt") as file:
            said = json.loads((file.metadata() or {})["attnfaith"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError, KeyError, ValueError):
        return False
    if said.get("format") != FORMAT or said["of"] != of:
        return False
    training.gates.load_state_dict(_under("gates.", tensors))
    training.multipliers.copy_(tensors["multipliers"])
    optimizer = training.optimizer
    optimizer.steps = said["steps"]
    for number, (one, slow) in enumerate(zip(optimizer.parameters, optimizer.slow, strict=True)):
        kept = _under(f"optimizer.{number}.", tensors)
        slow.copy_(kept.pop("slow"))
        if kept:  # of a layer that was never drawn there is nothing
            steps = {"step": kept.pop("step")}
            optimizer.optimizer.state[one] = {key: values.to(one.device) for key, values in kept.items()} | steps
    training.noise.set_state(tensors["noise"])
    training.random.bit_generator.state = said["random"]
    training.epoch, training.log, training.best, training.chosen = (
        said[name] for name in ("epoch", "log", "best", "chosen")
    )
    training.chosen_state = _under("chosen.", tensors) or None
    training.set_rate()
    return True


def _under(start: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(start): values for name, values in tensors.items() if name.startswith(start)}
