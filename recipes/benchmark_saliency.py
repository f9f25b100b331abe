"""What a measure of saliency costs, one thread, beside captum's on the same model, points and texts.

Rows: every measure that captum can make of the BiLSTM that `benchmark.py` times, on texts of 20 and of 200 tokens.
Integrated gradients have 50 midpoints, KernelSHAP and LIME 256 samples, the same on both sides, and absent tokens are zeros.
Values are checked to be the same before anything is timed. captum has its own batching switched on: of points
(`internal_batch_size`) and of changed texts (`perturbations_per_eval`), and the fastest of several sizes counts. Of
integrated gradients and occlusion ours is what makes the inputs' column, without those of encoder states, which captum does
not make; gradient times input makes them too; gradient norms are both of the inputs' columns, with the gradient through
attention and with attention held fixed, for which captum is called twice. Figures are CPU time of this process per text, the
median of the repetitions, the two sides taking turns.

A second table has what each measure of the package costs, as it is measured by default, beside gradient times input, which
is one forward and one backward pass. Layer-wise relevance propagation, which captum does not have for these models, stands
in a third for each encoder, beside such a pass and the backward pass alone.
"""

import argparse
import importlib
import math
import pkgutil
import time
from pathlib import Path

import torch
from benchmark import VOCABULARY
from benchmark_timing import machine, same, save, take_turns
from captum._utils.models.linear_model import SkLearnLasso
from captum.attr import FeatureAblation, InputXGradient, IntegratedGradients, KernelShap, Lime, Saliency

import attnfaith.importance
from attnfaith._random import generator
from attnfaith.importance import gradient_norm, gradient_x_input, integrated_gradients, kernel_shap, lime, lrp
from attnfaith.importance._explained import explaining
from attnfaith.importance._fast.removal import without_token
from attnfaith.importance._inputs import differentiable, log_odds, without_parameters
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.subjects import opened


TEXTS = {20: 32, 200: 8}  # tokens: texts of a call
STEPS = 50
SAMPLES = 256
POINTS_AT_ONCE = (None, 32, 64)  # captum's internal_batch_size; None is all of them
CHANGES_AT_ONCE = (8, 32, 128)  # captum's perturbations_per_eval
SAMPLES_AT_ONCE = (16, 64, 256)  # the same


def texts_of(tokens, encoder="bilstm"):
    torch.manual_seed(0)
    config = AttentionClassifierConfig(vocab_size=VOCABULARY, encoder=encoder)
    model = AttentionClassifierForSequenceClassification(config).eval()
    ids = torch.randint(4, VOCABULARY, (TEXTS[tokens], tokens + 2))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    batch["instance_id"] = [f"benchmark/{row}" for row in range(len(ids))]
    return model, batch


def compare(measure, tokens, ours, theirs, sizes, repeats):
    """One row: ours() and theirs(size), which give scores [tokens] per text, with the size that is fastest for captum."""
    same(ours(), theirs(sizes[-1]), f"{measure}, {tokens} tokens")
    once = {}
    for size in sizes:
        start = time.process_time()
        theirs(size)
        once[size] = time.process_time() - start
    best = min(once, key=once.get)
    mine, captums = take_turns((ours, lambda: theirs(best)), repeats)
    count = TEXTS[tokens]
    row = {
        "measure": measure,
        "tokens": tokens,
        "texts": count,
        "ms_per_text": 1e3 * mine / count,
        "captum_ms_per_text": 1e3 * captums / count,
        "times_faster": captums / mine,
        "captum_at_once": "all" if best is None else str(best),
        "repeats": repeats,
    }
    print("  ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()))
    return row


def integrated_gradients_row(tokens, repeats):
    model, batch = texts_of(tokens)
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach()
    baseline = torch.zeros_like(embedded)
    baseline[:, [0, -1]] = embedded[:, [0, -1]]  # markers stay
    captum = IntegratedGradients(lambda points: model(inputs_embeds=points).logits)

    def ours():
        subject, own = opened(model, batch)
        with without_parameters(subject):
            with torch.no_grad():
                explained = explaining(subject.predict(own), own, 1)
            line = integrated_gradients.input_line(subject, own, explained, "zero")
            return integrated_gradients.integrate(line, STEPS, STEPS, 0.0).parts[:, 1:-1]

    def theirs(size):
        found = captum.attribute(
            embedded, baseline, target=1, n_steps=STEPS, method="riemann_middle", internal_batch_size=size
        )
        return found.sum(-1)[:, 1:-1]

    return compare(f"integrated gradients, {STEPS} steps", tokens, ours, theirs, POINTS_AT_ONCE, repeats)


def occlusion_row(tokens, repeats):
    model, batch = texts_of(tokens)
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach()
    groups = torch.arange(tokens + 2)[None, :, None].expand(1, -1, embedded.shape[-1])
    captum = FeatureAblation(lambda points: model(inputs_embeds=points).logits)

    given = {name: batch.get(name) for name in ("input_ids", "attention_mask", "token_type_ids")}

    @torch.no_grad()
    def ours():
        encoded = model.encode(**given)
        whole = model.decode(encoded.hidden, model.attend(*encoded))[:, None, 1]
        return (whole - without_token(model, given, encoded, torch.zeros_like(embedded[0, 0]))[..., 1])[:, 1:-1]

    @torch.no_grad()
    def theirs(size):
        found = captum.attribute(embedded, target=1, feature_mask=groups, perturbations_per_eval=size)
        return found[:, 1:-1, 0]

    return compare("occlusion by zeros", tokens, ours, theirs, CHANGES_AT_ONCE, repeats)


def gradient_x_input_row(tokens, repeats):
    model, batch = texts_of(tokens)
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach()
    captum = InputXGradient(lambda points: model(inputs_embeds=points).logits)

    def ours():
        return gradient_x_input.measure(model, batch, target=1)["importance_gradient_x_input"]

    def theirs(_):
        with without_parameters(model):
            return captum.attribute(embedded.requires_grad_(), target=1).detach().sum(-1)[:, 1:-1]

    return compare("gradient times input", tokens, ours, theirs, (None,), repeats)


def gradient_norm_row(tokens, repeats):
    model, batch = texts_of(tokens)
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach()

    def through(points):
        return log_odds(model(inputs_embeds=points).logits)

    def fixed(points):
        encoded = model.encode(inputs_embeds=points)
        return log_odds(model.decode(encoded.hidden, model.attend(*encoded).detach()))

    columns = ("importance_gradient_norm", "importance_gradient_norm_detached")

    def ours():
        found = gradient_norm.measure(model, batch)
        return [values for column in columns for values in found[column]]

    def theirs(_):
        with without_parameters(model):
            slopes = [Saliency(f).attribute(embedded.requires_grad_(), abs=False) for f in (through, fixed)]
        return torch.cat(slopes).detach().norm(dim=-1)[:, 1:-1]

    return compare("gradient norm, through attention and not", tokens, ours, theirs, (None,), repeats)


def sampled_row(name, tokens, repeats, ours, make):
    """A measure fitted to parts of a text that are drawn, with the same draws; make(value) is captum's."""
    model, batch = texts_of(tokens)
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach()
    groups = torch.arange(tokens)[None, :, None].expand(1, -1, embedded.shape[-1])

    def measured():
        return ours.measure(model, batch, target=1, samples=SAMPLES, absent="zero")[f"importance_{name}"]

    def theirs(size):
        found = []
        for text, instance in zip(embedded.split(1), batch["instance_id"], strict=True):
            begin, inner, end = text[:, :1], text[:, 1:-1], text[:, -1:]

            @torch.no_grad()
            def value(parts, begin=begin, end=end):
                points = torch.cat([begin.expand(len(parts), -1, -1), parts, end.expand(len(parts), -1, -1)], 1)
                return model(inputs_embeds=points).logits[:, 1]

            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(generator(0, instance, name).integers(2**63)))
                scores = make(value).attribute(inner, feature_mask=groups, n_samples=SAMPLES, perturbations_per_eval=size)
            found.append(scores[0, :, 0])
        return found

    return compare(f"{name}, {SAMPLES} samples", tokens, measured, theirs, SAMPLES_AT_ONCE, repeats)


def kernel_shap_row(tokens, repeats):
    return sampled_row("kernel_shap", tokens, repeats, kernel_shap, KernelShap)


def lime_row(tokens, repeats):
    def near(_whole, _changed, part, width=0.25, **_):  # the measure's width, of the parts and not of their embeddings
        distance = 1 - torch.nn.functional.cosine_similarity(part.double(), torch.ones_like(part).double()).item()
        return math.exp(-(distance**2) / (2 * width**2))

    def make(value):
        return Lime(value, interpretable_model=SkLearnLasso(alpha=0.01), similarity_func=near)

    return sampled_row("lime", tokens, repeats, lime, make)


def measure_rows(tokens, repeats):
    """What each measure costs; those that take no time worth telling, random and uniform scores, too."""
    model, batch = texts_of(tokens)
    names = [found.name for found in pkgutil.iter_modules(attnfaith.importance.__path__) if found.name[0] != "_"]
    modules = [importlib.import_module(f"attnfaith.importance.{name}") for name in names]
    modules = [module for module in modules if not hasattr(module, "pending")]  # what has to be trained first costs that
    names = [module.__name__.rpartition(".")[2] for module in modules]
    spent = take_turns([lambda module=module: module.measure(model, batch) for module in modules], repeats)
    passes = spent[names.index("gradient_x_input")]
    return [
        {
            "measure": name,
            "tokens": tokens,
            "texts": TEXTS[tokens],
            "ms_per_text": 1e3 * seconds / TEXTS[tokens],
            "times_gradient_x_input": seconds / passes,
            "repeats": repeats,
        }
        for name, seconds in sorted(zip(names, spent, strict=True), key=lambda one: one[1])
    ]


def lrp_row(encoder, tokens, repeats):
    model, batch = texts_of(tokens, encoder)
    lost = max(abs(value) for value in lrp.measure(model, batch)["lrp_unaccounted"])
    if lost > 1e-5:
        raise SystemExit(f"lrp, {encoder}, {tokens} tokens: the rules lose {lost:.1e} of a logit")
    with differentiable(*opened(model, batch)) as reading:
        logits, embedded = reading.logits()[:, 1].sum(), reading.inputs[0]

    sides = (
        lambda: lrp.measure(model, batch),
        lambda: gradient_x_input.measure(model, batch),
        lambda: torch.autograd.grad(logits, embedded, retain_graph=True),
    )
    mine, passes, back = take_turns(sides, repeats)
    count = TEXTS[tokens]
    return {
        "encoder": encoder,
        "tokens": tokens,
        "texts": count,
        "ms_per_text": 1e3 * mine / count,
        "gradient_ms_per_text": 1e3 * passes / count,
        "times_as_long": mine / passes,
        "backward_ms_per_text": 1e3 * back / count,
        "times_a_backward": mine / back,
        "repeats": repeats,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("recipes/benchmark_results"))
    known = parser.parse_args()
    torch.set_num_threads(1)
    beside = (
        gradient_x_input_row,
        gradient_norm_row,
        integrated_gradients_row,
        occlusion_row,
        kernel_shap_row,
        lime_row,
    )
    line = f"CPU time of one thread, the median of the repetitions. {machine()}."
    rows = [row(tokens, known.repeats) for row in beside for tokens in TEXTS]
    save(rows, known.output / "saliency", line)
    rows = [row for tokens in TEXTS for row in measure_rows(tokens, known.repeats)]
    save(rows, known.output / "measures", line)
    encoders = ("bilstm", "bigru", "transformer", "cnn", "average")
    rows = [lrp_row(encoder, tokens, known.repeats) for encoder in encoders for tokens in TEXTS]
    save(rows, known.output / "lrp", line)
    print("tables:", ", ".join(f"{known.output}/{name}.md" for name in ("saliency", "measures", "lrp")))


if __name__ == "__main__":
    main()
