"""What the measures of a stack of layers cost, one thread, in forward passes of the same text.

    python recipes/benchmark_stacks.py [--model FOLDER] [--tokens 32 128]

The model is a BERT of MiniLM's sizes with random weights, or that of --model; the text is of random tokens, read alone.
Where there is a naive way to the same numbers a twin goes it, in the same run and in turn with ours, and has to give the
same values before anything is timed: one reading for each token that is left out or occluded; one pass forward and back for
each point of integrated gradients; a layer read anew for each token whose value is zeroed; vectors of every token carried
forward through all layers (DecompX, as its authors have it); gradient times input as one writes it by hand.
Of identifiability the
twin is one call of a solver for each row of each head, which gives an attention that changes nothing; ours gives the limits
of the weights that are shown besides. Of its calls CALLS are timed, and the time is that of as many as there are rows.

Figures are CPU time of this process, the median of the repetitions; what takes longer than SLOW seconds is timed once.
"""

import argparse
import importlib.metadata
import time
from pathlib import Path

import numpy as np
import torch
from benchmark_timing import machine, same, save, turns
from scipy.optimize import linprog
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification

from attnfaith.measurement import load_producers
from attnfaith.subjects import Batch, SelfAttention


SIZES = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}  # MiniLM's
STEPS = 20  # of integrated gradients
CALLS = 12  # of the solver
SLOW = 1.0
MEASURES = {
    **dict.fromkeys(("gradient", "gradient_norm", "gradient_x_input", "attention_x_gradient", "chefer"), {}),
    "integrated_gradients": {"steps": STEPS, "max_steps": STEPS},
    **dict.fromkeys(("attn_lrp", "decompx", "attention_norm", "globenc", "alti", "value_zeroing", "rollout", "flow"), {}),
    **dict.fromkeys(("leave_one_out", "occlusion", "identifiability"), {}),
}


class Twin:
    """The naive ways: each gives a score for every input position, (L,), of the class that is predicted.

    model: a classifier of transformers. ids (1,L). inside (L,) bool: those that are no markers.
    """

    def __init__(self, model, ids: torch.Tensor, inside: torch.Tensor):
        self.model, self.ids, self.inside = model, ids, inside
        self.mask = torch.ones_like(ids)
        with torch.no_grad():
            self.embedded = model.get_input_embeddings()(ids)
            self.logits = model(input_ids=ids, attention_mask=self.mask).logits[0]
        self.target = int(self.logits.argmax())

    def _without(self):
        """Logits (L,C), one reading for each position that is left out."""
        with torch.no_grad():
            ids = [torch.cat([self.ids[:, :place], self.ids[:, place + 1 :]], 1) for place in range(self.ids.shape[1])]
            return torch.cat([self.model(input_ids=one, attention_mask=torch.ones_like(one)).logits for one in ids])

    def leave_one_out(self):
        return (self._without().softmax(-1) - self.logits.softmax(-1)).abs().sum(-1) / 2

    def occlusion(self):
        return self.logits[self.target] - self._without()[:, self.target]

    def _slope(self, point):
        point = point.detach().requires_grad_()
        logits = self.model(inputs_embeds=point, attention_mask=self.mask).logits
        return torch.autograd.grad(logits[0, self.target], point)[0][0]

    def gradient_x_input(self):
        return (self._slope(self.embedded) * self.embedded[0]).sum(-1)

    def integrated_gradients(self):
        shares = [torch.where(self.inside, (step + 0.5) / STEPS, 1.0).unsqueeze(1) for step in range(STEPS)]
        points = [self._slope(share * self.embedded) for share in shares]  # markers stay what they are
        return (torch.stack(points).mean(0) * self.embedded[0]).sum(-1)


class BertTwin(Twin):
    """And those that are written for one architecture."""

    @torch.no_grad()
    def value_zeroing(self):
        states = self.model.bert(input_ids=self.ids, attention_mask=self.mask, output_hidden_states=True).hidden_states
        mixed = torch.eye(self.ids.shape[1], dtype=torch.float64)[:1]
        for layer, given in reversed(list(zip(self.model.bert.encoder.layer, states, strict=False))):
            own = functional.normalize(_first(layer(given)).double(), dim=-1)
            distances = []
            for place in range(given.shape[1]):
                with _zeroed(layer.attention.self.value, place):
                    other = functional.normalize(_first(layer(given)).double(), dim=-1)
                distances.append((own - other).square().sum(-1) / 2)
            rows = torch.stack(distances, 1)
            mixed = mixed @ (rows / rows.sum(1, keepdim=True))
        return mixed[0] / mixed.sum()

    @torch.no_grad()
    def decompx(self):
        """Vectors (source, place, size) carried through every layer, without biases."""
        states = self.model.bert.embeddings(input_ids=self.ids)[0]
        parts = torch.diag_embed(states.T).permute(1, 2, 0).contiguous()
        for layer in self.model.bert.encoder.layer:
            own, out, heads = layer.attention.self, layer.attention.output, self.model.config.num_attention_heads

            def split(values, heads=heads):
                return values.unflatten(-1, (heads, -1)).transpose(-2, -3)

            query, key, value = split(own.query(states)), split(own.key(states)), split(own.value(states))
            weights = (query @ key.transpose(1, 2) / query.shape[-1] ** 0.5).softmax(-1)
            attended = out.dense((weights @ value).transpose(0, 1).flatten(1)) + states
            carried = weights @ split(parts @ own.value.weight.T)
            carried = carried.transpose(1, 2).flatten(2) @ out.dense.weight.T + parts
            parts, states = _normalised(out.LayerNorm, carried, attended), out.LayerNorm(attended)
            inner = layer.intermediate.dense(states)
            slope = torch.where(inner == 0, 0.5, functional.gelu(inner) / inner)
            fed = layer.output.dense(functional.gelu(inner)) + states
            carried = ((parts @ layer.intermediate.dense.weight.T) * slope) @ layer.output.dense.weight.T + parts
            parts, states = _normalised(layer.output.LayerNorm, carried, fed), layer.output.LayerNorm(fed)
        inner = self.model.bert.pooler.dense(states[0])
        pooled = (parts[:, 0] @ self.model.bert.pooler.dense.weight.T) * (inner.tanh() / inner)
        return pooled @ self.model.classifier.weight[self.target]


def _first(output):
    return (output if isinstance(output, torch.Tensor) else output[0])[0]


def _normalised(norm, parts, states):
    spread = (states.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    return (parts - parts.mean(-1, keepdim=True)) / spread * norm.weight


def _zeroed(module, place: int):
    """Within, what a module gives at a place is zeros."""

    def zero(_module, _given, output):
        output = output.clone()
        output[:, place] = 0
        return output

    return module.register_forward_hook(zero)


class Solver:
    """One call of a solver a row: an attention that leaves what a head puts out as it is."""

    def __init__(self, subject: SelfAttention, batch: Batch):
        with torch.no_grad():
            read = subject.in_double().read(batch)
        self.maps = [(one.weights[0].numpy(), one.values[0].numpy()) for one in read.maps]
        every = [(*row,) for row in np.ndindex(len(self.maps), *self.maps[0][0].shape[:2])]
        self.rows = [every[number] for number in np.linspace(0, len(every) - 1, CALLS).astype(int)]

    def __call__(self) -> list[np.ndarray]:
        rng, others = np.random.default_rng(0), []
        for layer, head, row in self.rows:
            own, values = self.maps[layer][0][head, row], self.maps[layer][1][head]
            sums = np.column_stack([values, np.ones(len(own))]).T
            solved = linprog(rng.choice([-1.0, 1.0], len(own)), A_eq=sums, b_eq=sums @ own, method="highs")
            others.append(own if solved.x is None else solved.x)
        return others

    def check(self) -> None:
        """Raises ValueError where such an attention changes what its head puts out."""
        for (layer, head, row), other in zip(self.rows, self(), strict=True):
            own, values = self.maps[layer][0][head, row], self.maps[layer][1][head]
            same([own @ values], [other @ values], "identifiability", 1e-6)


def subject_of(folder: str | None) -> tuple[SelfAttention, str]:
    """The classifier that is measured, and what it is in words."""
    if folder is None:
        torch.manual_seed(0)
        model = BertForSequenceClassification(BertConfig(**SIZES, num_labels=2)).eval()
        return SelfAttention(model), "a BERT of MiniLM's sizes, random weights"
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    subject = SelfAttention(model, AutoTokenizer.from_pretrained(folder))
    return subject, f"{type(model).__name__}, {model.config.num_hidden_layers} layers of {model.config.hidden_size}"


def text_of(subject: SelfAttention, tokens: int) -> torch.Tensor:
    """Ids (1,L) of so many positions; the first and last are a marker each where there is a tokenizer that puts them."""
    size, made = subject.model.get_input_embeddings().num_embeddings, torch.Generator().manual_seed(0)
    ordinary = torch.tensor([number for number in range(size) if number not in subject.markers])
    ids = ordinary[torch.randint(len(ordinary), (1, tokens), generator=made)]
    for place, name in ((0, "cls_token_id"), (-1, "sep_token_id")):
        if (number := getattr(subject.tokenizer, name, None)) is not None:
            ids[0, place] = number
    return ids


def measure_length(subject: SelfAttention, tokens: int, repeats: int) -> list[dict]:
    """The rows of one length; a measure that the model cannot have has none."""
    ids = text_of(subject, tokens)

    def batch():
        return Batch.of({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, subject)

    @torch.no_grad()
    def forward():
        return subject.predict(batch())

    inside = subject.attendable(batch())[0]
    twin = (BertTwin if isinstance(subject.model, BertForSequenceClassification) else Twin)(subject.model, ids, inside)
    rows = []
    for name, options in MEASURES.items():
        module = load_producers([name])[name]
        if not module.NEEDS <= subject.capabilities:
            print(f"left out: {name}, which needs {', '.join(sorted(module.NEEDS - subject.capabilities))}")
            continue

        def ours(module=module, options=options):
            return module.measure(subject, batch(), **options)

        made = ours()
        naive, times = getattr(twin, name, None), 1
        if name == "identifiability":
            naive = Solver(subject, batch())
            naive.check()
            times = int(made["identifiability_layer_rows"][0].sum()) / CALLS
        elif naive is not None:
            check(made[f"importance_{name}"][0], naive().detach().numpy()[inside], f"{name}, {tokens} tokens")
        rows.append({"measure": name, "tokens": tokens} | timed(forward, ours, naive, times, repeats))
        print(rows[-1], flush=True)
    return rows


def check(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    """Raises ValueError where they differ by more than a thousandth of the largest value, or there is nothing to compare."""
    size = float(np.abs(ours).max())
    if not size > 0:
        raise ValueError(f"{what}: all scores are 0, so that nothing is compared")
    same([ours], [theirs], what, 1e-3 * size)


def timed(forward, ours, naive, times: float, repeats: int) -> dict:
    """What ours and the naive twin cost, `times` the call of the twin, in turn with a forward pass."""
    sides = [forward, ours] if naive is None else [forward, ours, naive]
    start = time.process_time()
    for call in sides:
        call()
    repeats = 1 if time.process_time() - start > SLOW else repeats
    spent = [1e3 * float(np.median(one)) for one in turns(sides, repeats, warm=False)]
    theirs = spent[2] * times if naive is not None else None
    return {
        "ms": spent[1],
        "forward_ms": spent[0],
        "forward_passes": spent[1] / spent[0],
        "naive_ms": theirs,
        "times_faster": None if theirs is None else theirs / spent[1],
        "repeats": repeats,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help="folder or name of a classifier; a BERT of random weights by default")
    parser.add_argument("--tokens", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("recipes/benchmark_results/stacks"), help="without ending")
    known = parser.parse_args()
    torch.set_num_threads(1)
    subject, said = subject_of(known.model)
    rows = [row for tokens in known.tokens for row in measure_length(subject, tokens, known.repeats)]
    line = f"CPU time of one thread, one text, the median of the repetitions. {machine()}"
    save(rows, known.output, f"{line}, transformers {importlib.metadata.version('transformers')}. Model: {said}.")
    print(f"table: {known.output}.md")


if __name__ == "__main__":
    main()
