"""Measures of this package beside other libraries' own code: the same fine-tuned model, the same texts.

    python recipes/any_classifier/compare_peers.py MODEL TEXTS.parquet [--texts 20] [--lengths 32 128] [--long 3]

Where two definitions are the same the values are compared; where they are not, `definition` says how they differ and the
difference is that to the peer's definition worked out from gradients. autoLRP, whose AttnLRP is another, is also told the
rules of ours, see autolrp_rules.py. Times are CPU milliseconds of one thread, the median over texts, each peer beside ours
in turn; `forward_passes` is ours over that of one reading of the text. `ours_reads` and `theirs_reads` count the texts and
changed texts that the model reads, the mean over texts, and `times_faster_a_read` compares the times of one: words are fewer
than tokens.
Every side gets the model as it is loaded by default, but autoLRP, which needs it with eager attention. The peers are not
requirements of this package: install captum, interpreto, explainkit and autoLRP by hand, those that are missing are left out
and said so. The table is written beside this script, as peers.csv and peers.md, or where --output says.
"""

import argparse
import copy
import functools
import importlib.metadata
import importlib.util
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from autolrp_rules import own_autolrp, relevance_by_size, signed_autolrp
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from attnfaith.catalogue import named
from attnfaith.measurement import load_producers
from attnfaith.subjects import SelfAttention


sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_timing import machine, save  # noqa: E402


STEPS = 20  # of integrated gradients, in every library
PEERS = ("interpreto", "captum", "autolrp", "explainkit")
SAID = (
    "CPU time of one thread, the median over texts, each side in turn. {machine}; transformers {transformers}; {peers}. "
    "Model: {model}. {texts} texts as they are, and {long} of each length, made of their words. Integrated gradients have "
    "{steps} points in every library."
)


def scores_of(subject, name, text, **options):
    """One text's scores by a measure of ours, [T]."""
    (entry,) = named([name])
    module = load_producers([entry.name])[entry.name]
    return np.asarray(module.measure(subject, subject.encode([text]), **options)[f"importance_{name}"][0], np.float64)


class Peers:
    """The other libraries' ways to the same numbers; each takes a text and gives a score for each token of it.

    model: in eval mode. tokenizer: its own. reads: how many texts each forward pass of the model has read, also in copies.
    """

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model, tokenizer
        self.reading = SelfAttention(model, tokenizer)
        self.reads = reads = []

        def note(_, args, kwargs):
            reads.append(len(next(one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor))))

        model.register_forward_pre_hook(note, with_kwargs=True)

    def inside(self, text) -> torch.Tensor:
        """(L,) bool: the tokens of the text, without markers."""
        return self.reading.attendable(self.reading.encode([text]))[0]

    def given(self, text):
        return self.tokenizer(text, return_tensors="pt")

    @functools.cached_property
    def _interpreto(self):
        import interpreto

        made = {
            "model": self.model,
            "tokenizer": self.tokenizer,
            "batch_size": 64,
            "granularity": interpreto.Granularity.TOKEN,
        }
        return {
            "occlusion": interpreto.Occlusion(**made),
            "gradient_x_input": interpreto.Saliency(**made),
            "integrated_gradients": interpreto.IntegratedGradients(**made, n_perturbations=STEPS + 1),
        }

    def interpreto(self, name, text):
        (output,) = self._interpreto[name](text)
        return output.attributions.detach().double().numpy().reshape(-1)

    @functools.cached_property
    def _explainkit(self):
        from explainkit import Explainer
        from explainkit.hf import from_pipeline

        read = from_pipeline(
            pipeline("text-classification", model=self.model, tokenizer=self.tokenizer, top_k=None), batch_size=64
        )
        return Explainer(read)

    def explainkit(self, text):
        return self._explainkit.explain(text, method="occlusion")

    def captum(self, text):
        """Integrated gradients of the predicted class's logit over the table's embeddings, midpoints."""
        from captum.attr import IntegratedGradients

        given = self.given(text)
        embedded = self.model.get_input_embeddings()(given["input_ids"]).detach()
        rest = {name: values for name, values in given.items() if name != "input_ids"}

        def read(inputs):
            more = {name: values.expand(len(inputs), -1) for name, values in rest.items()}
            return self.model(inputs_embeds=inputs, **more).logits

        target = int(read(embedded).argmax())
        inside = self.inside(text)
        start = torch.where(inside[None, :, None], 0.0, embedded)  # markers stay, as they do in ours
        scores = IntegratedGradients(read).attribute(embedded, start, target=target, n_steps=STEPS, method="riemann_middle")
        return scores.sum(-1)[0][inside].double().numpy()

    def alike(self, text, explanation) -> tuple[list[int], np.ndarray]:
        """The tokens of the text that are words of an explanation, and what it says of these."""
        offsets = self.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        tokens = [tuple(span) for span, inside in zip(offsets, self.inside(text).tolist(), strict=True) if inside]
        said = dict(zip(map(tuple, explanation.spans), explanation.scores, strict=True))
        same = [number for number, span in enumerate(tokens) if span in said]
        return same, np.array([said[tokens[number]] for number in same], np.float64)

    @functools.cached_property
    def _eager(self):
        model = copy.deepcopy(self.model)
        model.set_attn_implementation("eager")
        return model

    def autolrp(self, text):
        return self._relevance(text, own_autolrp)

    def autolrp_by_our_rules(self, text):
        return self._relevance(text, signed_autolrp)

    def relevance_by_size(self, text):
        """autoLRP's definition, from gradients."""
        return self._relevance(text, relevance_by_size)

    def _relevance(self, text, way):
        given = self.given(text)
        embedded = self._eager.get_input_embeddings()(given.pop("input_ids")).detach()
        return way(self._eager, given, embedded)[self.inside(text)].double().numpy()

    # -------------------------------------------------------------------- the peers' definitions, from gradients

    def mean_of_products(self, text, steps=None):
        """mean_d |x_d df/dx_d| of the embeddings x, and with steps its trapezoidal mean over the line from 1e-6 to x."""
        given = self.given(text)
        embedded = self.model.get_input_embeddings()(given["input_ids"]).detach()
        rest = {name: values for name, values in given.items() if name != "input_ids"}
        target = int(self.model(**given).logits.argmax())
        alphas = torch.linspace(0, 1, steps + 1) if steps else torch.ones(1)
        total = []
        for alpha in alphas:
            inputs = (1e-6 + alpha * (embedded - 1e-6) if steps else embedded.clone()).requires_grad_()
            (slope,) = torch.autograd.grad(self.model(inputs_embeds=inputs, **rest).logits[0, target], inputs)
            total.append((slope * inputs.detach()).abs().mean(-1)[0])
        total = torch.stack(total)
        means = torch.trapezoid(total, alphas, dim=0) if steps else total[0]
        return means[self.inside(text)].double().numpy()


def rows(peers: Peers, subject):
    """(our measure, peer, ours, theirs, to compare theirs with, how definitions differ)."""
    ours = functools.partial(scores_of, subject)
    occlusion = functools.partial(ours, "occlusion", by="mask_token")
    gradients = functools.partial(ours, "integrated_gradients", steps=STEPS, max_steps=STEPS)
    return [
        ("occlusion", "interpreto", occlusion, lambda text: peers.interpreto("occlusion", text), None, ""),
        (
            "gradient_x_input",
            "interpreto",
            functools.partial(ours, "gradient_x_input"),
            lambda text: peers.interpreto("gradient_x_input", text),
            peers.mean_of_products,
            "theirs: the mean over dimensions of absolute products, so without sign; ours: their sum",
        ),
        (
            "integrated_gradients",
            "interpreto",
            gradients,
            lambda text: peers.interpreto("integrated_gradients", text),
            lambda text: peers.mean_of_products(text, STEPS),
            "theirs: the same mean at each step, trapezoids; ours: the sum, midpoints",
        ),
        ("integrated_gradients", "captum", gradients, peers.captum, None, ""),
        (
            "attn_lrp",
            "autolrp",
            functools.partial(ours, "attn_lrp", inputs="table"),
            peers.autolrp,
            peers.relevance_by_size,
            "theirs: of 1, sums and biases share by absolute values, a layer norm hands relevance on element by element; "
            "ours: of f, they share by the summands, a layer norm is linear, its spread held",
        ),
        (
            "attn_lrp",
            "autolrp by our rules",
            functools.partial(ours, "attn_lrp", inputs="table"),
            peers.autolrp_by_our_rules,
            None,
            "",
        ),
        (
            "occlusion",
            "explainkit",
            functools.partial(ours, "occlusion", by="retokenise", output="probability"),
            peers.explainkit,
            None,
            "theirs: words by a regular expression; compared on words that are one token",
        ),
    ]


def compare(model: str, texts: list[str], lengths: list[int], long: int) -> list[dict]:
    """One row for each measure, peer and length; `long` texts of each length that is given."""
    classifier = AutoModelForSequenceClassification.from_pretrained(model).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    subject, peers = SelfAttention(classifier, tokenizer), Peers(classifier, tokenizer)
    made = []
    for length in (None, *lengths):
        chosen = texts if length is None else [_of_length(texts, tokenizer, length, number) for number in range(long)]
        for name, peer, ours, theirs, definition, how in rows(peers, subject):
            if importlib.util.find_spec(peer.partition(" ")[0]) is None:
                made.append({"measure": name, "peer": peer, "definition": "not installed"})
                continue
            if length is None:
                ours(chosen[0]), theirs(chosen[0])  # what is made once is not timed
            made.append(_row(name, peer, ours, theirs, definition, how, chosen, length, peers))
            print(made[-1], flush=True)
    return made


def versions() -> str:
    """The peers that are installed, with their versions, in one line."""
    installed = [name for name in PEERS if importlib.util.find_spec(name) is not None]
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in installed) or "no peer is installed"


def _of_length(texts, tokenizer, length, number):
    """A text of so many tokens with its markers, of the words of the others."""
    words = " ".join(texts[number:] + texts[:number])
    ids = tokenizer(words, add_special_tokens=False, truncation=True, max_length=length - 2)["input_ids"]
    return tokenizer.decode(ids)


def _row(name, peer, ours, theirs, definition, how, texts, length, peers) -> dict:
    differences, sizes, spent, reads = [], [], defaultdict(list), defaultdict(list)

    def timed(side, call, *given):
        peers.reads.clear()
        start = time.process_time()
        value = call(*given)
        spent[side].append(time.process_time() - start)
        reads[side].append(sum(peers.reads))
        return value

    for text in texts:
        value, other = timed("ours", ours, text), timed("theirs", theirs, text)
        timed("forward", peers.reading.predict, peers.reading.encode([text]))
        reference = value if definition is None else definition(text)
        if hasattr(other, "spans"):  # of words
            same, other = peers.alike(text, other)
            reference = reference[same]
        other = other[peers.inside(text).numpy()] if len(other) > len(reference) else other
        differences.append(float(np.abs(other - reference).max(initial=0)))
        sizes.append(float(np.abs(reference).max(initial=0)))
    times = {side: statistics.median(values) for side, values in spent.items()}
    count = {side: statistics.mean(values) for side, values in reads.items()}
    return {
        "measure": name,
        "peer": peer,
        "tokens": "those of the texts" if length is None else str(length),
        "texts": len(texts),
        "largest_difference": max(differences),
        "largest_value": max(sizes),
        "ours_ms": 1000 * times["ours"],
        "theirs_ms": 1000 * times["theirs"],
        "times_faster": times["theirs"] / times["ours"],
        "forward_passes": times["ours"] / times["forward"],
        "ours_reads": count["ours"],
        "theirs_reads": count["theirs"],
        "times_faster_a_read": times["theirs"] / count["theirs"] / (times["ours"] / count["ours"]),
        "definition": how,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="folder or name of a fine-tuned classifier")
    parser.add_argument("data", help="parquet file with a column text")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "peers", help="without ending")
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--lengths", type=int, nargs="*", default=[32, 128])
    parser.add_argument("--long", type=int, default=3, help="texts of each of these lengths")
    parser.add_argument("--named", help="what the table calls the model; the name of its folder by default")
    known = parser.parse_args()
    torch.set_num_threads(1)
    frame = pd.read_parquet(known.data)
    texts = frame["text"].sample(known.texts, random_state=0).tolist()
    made = compare(known.model, texts, known.lengths, known.long)
    said = {"machine": machine(), "transformers": importlib.metadata.version("transformers"), "peers": versions()}
    said |= {"model": known.named or Path(known.model).name, "texts": len(texts), "long": known.long, "steps": STEPS}
    save(made, known.output, SAID.format(**said))


if __name__ == "__main__":
    main()
