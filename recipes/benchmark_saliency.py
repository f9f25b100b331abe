"""What a measure of saliency costs, one thread, beside captum's on the same model, points and texts.

Rows: integrated gradients at 50 midpoints, and occlusion by zeros, of the BiLSTM that `benchmark.py` times, on texts of 20
and of 200 tokens. Values are checked to be the same before anything is timed. captum has its own batching switched on: of
points (`internal_batch_size`) and of changed texts (`perturbations_per_eval`), and the fastest of several sizes counts.
Ours is what makes the inputs' column; those of encoder states, which captum does not make, are left out. Figures are CPU
time of this process per text, the median of the repetitions, the two sides taking turns.

Layer-wise relevance propagation, which captum does not have for these models, stands in a table of its own beside gradient
times input, which is one forward and one backward pass, and beside that backward pass alone, for each encoder.
"""

import argparse
import time
from pathlib import Path

import pandas as pd
import torch
from benchmark import VOCABULARY, same, take_turns
from captum.attr import FeatureAblation, IntegratedGradients

from attnfaith._memory import keep_freed_memory
from attnfaith.importance import gradient_x_input, integrated_gradients, lrp
from attnfaith.importance._inputs import differentiable_inputs, without_parameters
from attnfaith.importance.leave_one_out import without_token
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.reporting import save_table


TEXTS = {20: 32, 200: 8}  # tokens: texts of a call
STEPS = 50
POINTS_AT_ONCE = (None, 16, 64)  # captum's internal_batch_size; None is all of them
CHANGES_AT_ONCE = (8, 32, 128)  # captum's perturbations_per_eval


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
        "captum_at_once": "all" if best is None else best,
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
        with without_parameters(model):
            inputs, *_ = integrated_gradients.lines(model, batch, "zero", 1, "logit")
            return integrated_gradients.integrate(inputs, STEPS, STEPS, 0.0).parts[:, 1:-1]

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


def lrp_row(encoder, tokens, repeats):
    model, batch = texts_of(tokens, encoder)
    lost = max(abs(value) for value in lrp.measure(model, batch)["lrp_unaccounted"])
    if lost > 1e-5:
        raise SystemExit(f"lrp, {encoder}, {tokens} tokens: the rules lose {lost:.1e} of a logit")
    with differentiable_inputs(model, batch) as (embedded, encoded):
        logits = model.decode(encoded.hidden, model.attend(*encoded))[:, 1].sum()

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
    keep_freed_memory()  # as every command of the package does; captum has it, too
    rows = [row(tokens, known.repeats) for row in (integrated_gradients_row, occlusion_row) for tokens in TEXTS]
    save_table(pd.DataFrame(rows), known.output / "saliency")
    encoders = ("bilstm", "bigru", "transformer", "cnn", "average")
    rows = [lrp_row(encoder, tokens, known.repeats) for encoder in encoders for tokens in TEXTS]
    save_table(pd.DataFrame(rows), known.output / "lrp")
    print(f"tables: {known.output}/saliency.md, {known.output}/lrp.md")


if __name__ == "__main__":
    main()
