"""Measures of this package beside other libraries' own code: the same fine-tuned model, the same texts.

    python recipes/any_classifier/compare_peers.py MODEL TEXTS.parquet

Where two definitions are the same the values are compared; where they are not, `definition` says how they differ, and the
difference is that to the peer's definition worked out from gradients. There are TEXTS texts as they are, and LONG of each of
LENGTHS. Times are CPU milliseconds of one thread, medians over texts, each peer beside ours in turn; `forward_passes` is
ours over that of one reading of the text. `ours_reads` and `theirs_reads` count the texts, whole or changed, that the model
reads, the mean over texts, and `times_faster_a_read` compares the times of one: words are fewer than tokens. Install captum,
interpreto and explainkit by hand: those that are missing have no row. Writes peers.csv and peers.md beside this script.
"""

import argparse
import functools
import importlib.util
import sys
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from attnfaith.measurement.registry import find
from attnfaith.subjects import SelfAttention


sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_timing import machine, save


STEPS = 15  # of integrated gradients, in every library
TEXTS, LENGTHS, LONG = 20, (32, 128), 3
LIBRARIES = [name for name in ("interpreto", "captum", "explainkit") if importlib.util.find_spec(name)]
MEANS = "theirs: the mean over dimensions of absolute products, so without sign; ours: their sum"
MEAN_STEPS = "theirs: the same mean at each step, trapezoids; ours: the sum, the rule of Gauss and Kronrod"
WORDS = "theirs: words by a regular expression; compared on words that are one token"
POINTS = {"baseline": "zero", "tolerance": 1e6}
ROWS = (  # measure, peer, options of ours, method of theirs, method of their definition, how that differs
    ("occlusion", "interpreto", {"by": "mask_token"}, "interpreto_occlusion", None, ""),
    ("gradient_x_input", "interpreto", {}, "interpreto_saliency", "mean_of_products", MEANS),
    ("integrated_gradients", "interpreto", POINTS, "interpreto_integrated", "mean_over_line", MEAN_STEPS),
    ("integrated_gradients", "captum", POINTS, "captum", None, ""),
    ("occlusion", "explainkit", {"by": "delete", "output": "probability"}, "explainkit", None, WORDS),
)


class Peers:
    """The other libraries' ways to the same numbers: each method takes a text and gives a score for each token of it.

    model: in eval mode. reads: how many texts each forward pass of the model has read.
    """

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer, self.subject = model, tokenizer, SelfAttention(model, tokenizer)
        self.reads = reads = []

        def note(_, args, kwargs):
            reads.append(len(next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))))

        model.register_forward_pre_hook(note, with_kwargs=True)

    def ours(self, measure, text, **options):
        """The scores of a measure of this package."""
        scores = find(measure)(**options)(self.subject, self.subject.encode([text]))[f"importance_{measure}"]
        return np.asarray(scores[0], np.float64)

    def inside(self, text) -> torch.Tensor:
        """(L,) bool: the tokens of the text, without markers."""
        return self.subject.attendable(self.subject.encode([text]))[0]

    def inputs(self, text):
        """The embeddings (1,L,E) of a text, and what else the model is called with."""
        inputs = dict(self.tokenizer(text, return_tensors="pt"))
        return self.model.get_input_embeddings()(inputs.pop("input_ids")).detach(), inputs

    @functools.cached_property
    def _interpreto(self):
        import interpreto

        how = {"batch_size": 64, "granularity": interpreto.Granularity.TOKEN}
        how |= {"model": self.model, "tokenizer": self.tokenizer}
        integrated = interpreto.IntegratedGradients(**how, n_perturbations=STEPS + 1)
        return {"occlusion": interpreto.Occlusion(**how), "saliency": interpreto.Saliency(**how), "integrated": integrated}

    def interpreto(self, name, text):
        (output,) = self._interpreto[name](text)
        return output.attributions.detach().double().numpy().reshape(-1)

    interpreto_occlusion = functools.partialmethod(interpreto, "occlusion")
    interpreto_saliency = functools.partialmethod(interpreto, "saliency")
    interpreto_integrated = functools.partialmethod(interpreto, "integrated")

    @functools.cached_property
    def _explainkit(self):
        from explainkit import Explainer
        from explainkit.hf import from_pipeline

        read = pipeline("text-classification", model=self.model, tokenizer=self.tokenizer, top_k=None)
        return Explainer(from_pipeline(read, batch_size=64))

    def explainkit(self, text):
        return self._explainkit.explain(text, method="occlusion")

    def alike(self, text, explanation) -> tuple[list[int], np.ndarray]:
        """The tokens of the text that are words of an explanation, and the scores of these words."""
        offsets = self.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        tokens = [tuple(span) for span, inside in zip(offsets, self.inside(text).tolist(), strict=True) if inside]
        scores = dict(zip(map(tuple, explanation.spans), explanation.scores, strict=True))
        same = [number for number, span in enumerate(tokens) if span in scores]
        return same, np.array([scores[tokens[number]] for number in same], np.float64)

    def captum(self, text):
        """Integrated gradients of the predicted class's logit over the table's embeddings, Gauss-Legendre, with what is
        missing from their sum, as ours have it.
        """
        from captum.attr import IntegratedGradients

        (embedded, rest), inside = self.inputs(text), self.inside(text)

        def read(inputs):
            more = {name: values.expand(len(inputs), -1) for name, values in rest.items()}
            return self.model(inputs_embeds=inputs, **more).logits

        target = int(read(embedded).argmax())
        start = torch.where(inside[None, :, None], 0.0, embedded)  # markers stay, as they do in ours
        how = {"n_steps": STEPS, "method": "gausslegendre", "return_convergence_delta": True}
        scores, _ = IntegratedGradients(read).attribute(embedded, start, target=target, **how)
        return scores.sum(-1)[0][inside].double().numpy()

    def mean_of_products(self, text, steps=None):
        """mean_d |x_d df/dx_d| of the embeddings x, and with steps its trapezoidal mean over the line from 1e-6 to x."""
        embedded, rest = self.inputs(text)
        target = int(self.model(inputs_embeds=embedded, **rest).logits.argmax())
        alphas, total = torch.linspace(0, 1, steps + 1) if steps else torch.ones(1), []
        for alpha in alphas:
            inputs = (1e-6 + alpha * (embedded - 1e-6) if steps else embedded.clone()).requires_grad_()
            (slope,) = torch.autograd.grad(self.model(inputs_embeds=inputs, **rest).logits[0, target], inputs)
            total.append((slope * inputs.detach()).abs().mean(-1)[0])
        means = torch.trapezoid(torch.stack(total), alphas, dim=0) if steps else total[0]
        return means[self.inside(text)].double().numpy()

    mean_over_line = functools.partialmethod(mean_of_products, steps=STEPS)


def compare(peers: Peers, texts: list[str], lengths=LENGTHS, long: int = LONG) -> list[dict]:
    """One row for each measure, installed peer and length; `long` texts of each length."""
    rows = []
    for length in (None, *lengths):
        chosen = texts if length is None else [_of_length(texts, peers.tokenizer, length, number) for number in range(long)]
        for measure, peer, options, theirs, definition, how in ROWS:
            if peer in LIBRARIES:
                ours, theirs = functools.partial(peers.ours, measure, **options), getattr(peers, theirs)
                if length is None:
                    ours(chosen[0]), theirs(chosen[0])  # what is made once is not timed
                named = {"measure": measure, "peer": peer, "tokens": "those of the texts" if length is None else str(length)}
                reference = None if definition is None else getattr(peers, definition)
                rows.append(named | _numbers(peers, ours, theirs, reference, chosen) | {"definition": how})
                print(rows[-1], flush=True)
    return rows


def _of_length(texts, tokenizer, length, number):
    """A text of so many tokens with its markers, of the words of the others."""
    words = " ".join(texts[number:] + texts[:number])
    return tokenizer.decode(tokenizer(words, add_special_tokens=False, truncation=True, max_length=length - 2)["input_ids"])


def _numbers(peers, ours, theirs, definition, texts) -> dict:
    differences, sizes, spent, reads = [], [], defaultdict(list), defaultdict(list)

    def timed(side, call, *arguments):
        peers.reads.clear()
        start = time.process_time()
        value = call(*arguments)
        spent[side].append(1000 * (time.process_time() - start))
        reads[side].append(sum(peers.reads))
        return value

    for text in texts:
        value, other = timed("ours", ours, text), timed("theirs", theirs, text)
        timed("forward", peers.subject.predict, peers.subject.encode([text]))
        reference = value if definition is None else definition(text)
        if hasattr(other, "spans"):  # of words
            same, other = peers.alike(text, other)
            reference = reference[same]
        other = other[peers.inside(text).numpy()] if len(other) > len(reference) else other
        differences.append(float(np.abs(other - reference).max(initial=0)))
        sizes.append(float(np.abs(reference).max(initial=0)))
    ms = {side: float(np.median(values)) for side, values in spent.items()}
    count = {side: float(np.mean(values)) for side, values in reads.items()}
    numbers = {"texts": len(texts), "largest_difference": max(differences), "largest_value": max(sizes)}
    numbers |= {"ours_ms": ms["ours"], "theirs_ms": ms["theirs"], "times_faster": ms["theirs"] / ms["ours"]}
    numbers |= {"forward_passes": ms["ours"] / ms["forward"], "ours_reads": count["ours"], "theirs_reads": count["theirs"]}
    return numbers | {"times_faster_a_read": ms["theirs"] / count["theirs"] / (ms["ours"] / count["ours"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="folder or name of a fine-tuned classifier")
    parser.add_argument("data", help="parquet file with a column text")
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = pd.read_parquet(options.data)["text"].sample(TEXTS, random_state=0).tolist()
    model = AutoModelForSequenceClassification.from_pretrained(options.model).eval()
    rows = compare(Peers(model, AutoTokenizer.from_pretrained(options.model)), texts)
    installed = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    about = (
        f"CPU time of one thread, medians over texts, each side in turn. {machine()} {installed}. Model: "
        f"{Path(options.model).name}. {TEXTS} texts as they are, and {LONG} of each length, made of their words. Integrated "
        f"gradients have {STEPS} points in every library."
    )
    save(rows, Path(__file__).with_name("peers"), about)


if __name__ == "__main__":
    main()
