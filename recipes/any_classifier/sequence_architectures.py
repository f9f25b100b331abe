"""Which models of transformers from sequences to sequences can be measured: every type, made small, with random weights.

    python recipes/any_classifier/sequence_architectures.py [TYPE ...] [--output FOLDER] [--seconds 60]

As architectures.py does it for classifiers: of each type of `AutoModelForSeq2SeqLM` a small model is made, without a
download, and `sequence_subject` is asked to take it, with all its checks. FOLDER gets sequence_architectures.csv and .md.

verdict: "works"; "refused", the model was made and a check says why its cross-attention cannot be measured; "not built", the
small model could not be made or could not read a pair. layers: those of the decoder, each with `heads` over the source.
together: whether pairs are padded, or read one at a time. lacks: what measures cannot ask of it. own_difference: the largest
difference of logits read by the hook and by the model alone, in the implementation that transformers chooses, over their
size.
"""

import argparse
import sys
import warnings
from pathlib import Path

import pandas as pd
import torch
import transformers
from architectures import small_fields, tried_within
from transformers import CONFIG_MAPPING, AutoModelForSeq2SeqLM
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES

from attnfaith import AttnfaithError
from attnfaith.errors import excerpt
from attnfaith.subjects.sequences import sequence_subject


COLUMNS = ("type", "class", "verdict", "reason", "layers", "heads", "together", "lacks", "own_difference")
OWN = {  # what a type needs besides
    "encoder-decoder": {
        "encoder": {"model_type": "bert"},
        "decoder": {"model_type": "bert", "is_decoder": True, "add_cross_attention": True},
    },
    "fsmt": {"src_vocab_size": 100, "tgt_vocab_size": 100, "langs": ["en", "de"]},
    "led": {"attention_window": 8, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "prophetnet": {"num_encoder_layers": 2, "num_decoder_layers": 2, "num_encoder_attention_heads": 4}
    | {"num_decoder_attention_heads": 4, "decoder_start_token_id": 1},
}


def types() -> dict[str, str]:
    """The class of each type that transformers itself has."""
    names = MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    return {name: made for name, made in names.items() if isinstance(made, str) and hasattr(transformers, made)}


def small_translator(kind: str, seed: int = 0):
    """A small model of a type with random weights, in eval mode."""
    own = OWN.get(kind, {})
    fields = {"encoder": {}, "decoder": {}} if kind == "encoder-decoder" else small_fields(kind)
    fields = {**fields, **own}
    if kind == "encoder-decoder":
        fields = {name: small_fields(part["model_type"]) | part for name, part in own.items()}
    known = {} if kind == "encoder-decoder" else vars(CONFIG_MAPPING[kind]())
    fields = {"decoder_start_token_id": 0, "pad_token_id": 0, **fields}
    fields |= {name: None for name in ("forced_eos_token_id", "forced_bos_token_id") if name in known}
    torch.manual_seed(seed)
    return AutoModelForSeq2SeqLM.from_config(CONFIG_MAPPING[kind](**fields)).eval()


def tried(kind: str) -> dict[str, object]:
    """The row of a type."""
    row = {"type": kind, "class": types()[kind]}
    try:
        model = small_translator(kind)
    except Exception as error:  # configurations and models raise many kinds
        return row | {"verdict": "not built", "reason": f"{type(error).__name__}: {excerpt(error, 200)}"}
    try:
        sites = sequence_subject(model).sites
    except AttnfaithError as error:
        built = "fails the check 'reading'" not in str(error)
        return row | {"verdict": "refused" if built else "not built", "reason": excerpt(error, 300)}
    return row | {
        **{"verdict": "works", "reason": "", "layers": len(sites.cross), "heads": sites.heads, "together": sites.together},
        **{"lacks": "; ".join(sorted(sites.lacks)) or "nothing", "own_difference": sites.difference},
    }


def page(table: pd.DataFrame) -> str:
    """The table in Markdown, below what it counts."""
    counts = table["verdict"].value_counts()
    lines = [
        f"# Models of transformers {transformers.__version__} from sequences to sequences",
        f"{counts.get('works', 0)} of {len(table)} types work, {counts.get('refused', 0)} are refused and "
        f"{counts.get('not built', 0)} could not be built small. Where they work, logits read by the hook differ from what "
        f"the model itself says by at most {table['own_difference'].max():.1g} of their size.",
        table[table["verdict"] == "works"].drop(columns=["verdict", "reason"]).to_markdown(index=False, floatfmt=".2g"),
    ]
    for verdict in ("refused", "not built"):
        some = table[table["verdict"] == verdict][["type", "class", "reason"]]
        if len(some):
            lines += [f"## {verdict.capitalize()}", some.to_markdown(index=False)]
    return "\n\n".join(lines) + "\n"


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*", metavar="TYPE", help="those to try, again if need be; default: all")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder of the table")
    parser.add_argument("--seconds", type=float, default=60, help="limit for one type")
    options = parser.parse_args(arguments)
    known = types()
    if unknown := sorted(set(options.types) - set(known)):
        parser.error(f"transformers has no type {', '.join(unknown)} from sequences to sequences")
    warnings.simplefilter("ignore")
    path = options.output / "sequence_architectures.csv"
    rows = {}
    if path.is_file():
        rows = {row["type"]: row for row in pd.read_csv(path, keep_default_na=False, na_values=[""]).to_dict("records")}
    for kind in options.types or [name for name in known if name not in rows]:
        rows[kind] = tried_within(kind, options.seconds, tried, types)
        print(kind, rows[kind]["verdict"], rows[kind].get("reason") or "", flush=True)
        table = pd.DataFrame([rows[name] for name in known if name in rows], columns=COLUMNS)
        table = table.astype({"layers": "Int64", "heads": "Int64", "own_difference": float})
        options.output.mkdir(parents=True, exist_ok=True)
        table.to_csv(path, index=False)
        path.with_suffix(".md").write_text(page(table), encoding="utf-8")


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    sys.exit(main())
