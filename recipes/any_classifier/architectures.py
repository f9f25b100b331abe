"""Which models of transformers can be measured: every type, made small, with random weights.

    python recipes/any_classifier/architectures.py [TYPE ...] [--sequences]

Of each type of `AutoModelForSequenceClassification`, or with --sequences of `AutoModelForSeq2SeqLM`, a small model is made
from its configuration, without a download, and opened with all the checks that a large one has to pass. The table beside
this script, architectures.csv or sequence_architectures.csv, and the same as .md, has a row per type, written as soon as a
type is done. A type that takes longer than LIMIT is "not built".

verdict: "works"; "refused", the model was made and a check says why its attention cannot be measured; "not built", the small
model could not be made or could not read a text, which says nothing of a large one. layers: attentions over input positions
of all attentions, `maps` (encoder–decoders show the decoder's over the encoder). heads: of each. rows: which rows of the
last layer the logits depend on. together: how several texts are read at once. embeddings: whether these can be given, with a
gradient. lacks: what measures cannot ask of it. difference: the largest of logits read by the hook and by the model alone,
under "eager"; own_difference: and in the implementation that transformers chooses, over the logits' size. change: the
largest of a logit when all weights of the last layer are 0.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import TimeoutError, get_context
from pathlib import Path

import pandas as pd
import torch
import transformers
from transformers import CONFIG_MAPPING, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification
from transformers.models.auto import modeling_auto

from attnfaith import AttnfaithError
from attnfaith.subjects import Batch, SelfAttention, subject_of
from attnfaith.subjects.attention import silence
from attnfaith.subjects.base import eager
from attnfaith.support.errors import excerpt


FACTS = ("type", "class", "verdict", "reason")
LIMIT = 60  # seconds for one type
SIZES = {  # how large a part of a small model is, under every name that transformers has for it
    100: "vocab_size",
    64: "intermediate_size d_ff encoder_ffn_dim decoder_ffn_dim hidden_dim ffn_dim d_inner n_inner max_position_embeddings "
    "n_positions",
    32: "hidden_size d_model n_embd dim emb_dim embedding_size word_embed_proj_dim moe_intermediate_size "
    "shared_expert_intermediate_size",
    16: "q_lora_rank kv_lora_rank",
    8: "head_dim d_kv d_head attention_head_size qk_nope_head_dim qk_rope_head_dim v_head_dim linear_key_head_dim "
    "linear_value_head_dim",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts "
    "num_local_experts n_routed_experts linear_num_key_heads linear_num_value_heads",
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers num_key_value_heads "
    "num_experts_per_tok eos_token_id",
    1: "bos_token_id",
    0: "pad_token_id",
    0.2: "initializer_range init_std embed_init_std",  # attention that is far from uniform
}
SMALL = {name: size for size, names in SIZES.items() for name in names.split()}
LATENT = {"num_key_value_heads": 4}
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
SHARED = LATENT | {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2}
ROPE = dict.fromkeys(("full_attention", "sliding_attention"), {"rope_type": "default", "rope_theta": 10000.0})
OWN = {  # what a type needs besides
    **dict.fromkeys(("axk2", "deepseek_v2", "esmc", "minicpm3"), LATENT),
    **dict.fromkeys(("axk1", "deepseek_v3"), LATENT | {"n_group": 1, "topk_group": 1}),
    **dict.fromkeys(("minimax", "qwen3_5_text", "qwen3_next"), HYBRID),
    **dict.fromkeys(("zamba", "zamba2"), SHARED),
    "cohere_compass_text": {"rope_parameters": ROPE},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 4},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "layoutlmv3": {"coordinate_size": 4, "shape_size": 8},
    "lilt": {"hidden_size": 48, "max_2d_position_embeddings": 1024},
    "mobilebert": {"intra_bottleneck_size": 32, "initializer_range": 0.05},
    "mistral4": LATENT | {"head_dim": 16},
    "perceiver": {"num_latents": 8, "d_latents": 32, "num_self_attends_per_block": 2},
    "reformer": {
        **{"axial_pos_shape": [8, 8], "axial_pos_embds_dim": [16, 16], "attn_layers": ["local", "lsh"], "num_buckets": 2},
        **{"local_attn_chunk_length": 8, "lsh_attn_chunk_length": 8, "feed_forward_size": 64, "is_decoder": False},
    },
    "t5": {"decoder_start_token_id": 0},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
}
SEQUENCES_OWN = {
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


def small_fields(kind: str) -> dict[str, object]:
    """What the configuration of a small model says, and those of its parts."""
    configuration = CONFIG_MAPPING[kind]
    whole = configuration().to_dict()
    fields = {name: size for name, size in SMALL.items() if name in whole}
    for name in configuration.sub_configs:
        part = whole.get(name)
        if isinstance(part, dict) and part.get("model_type") in CONFIG_MAPPING:
            fields[name] = small_fields(part["model_type"])
    return fields | OWN.get(kind, {})


def small_classifier(kind: str, seed: int = 0, **fields):
    """A small classifier of a type with three classes and random weights, in eval mode."""
    config = CONFIG_MAPPING[kind](**{**small_fields(kind), "num_labels": 3, **fields})
    torch.manual_seed(seed)
    return AutoModelForSequenceClassification.from_config(config).eval()


@torch.no_grad()
def read_texts(model) -> dict[str, object]:
    """The row of a small classifier, from one text of 9 tokens and one of 6."""
    subject = SelfAttention(model)
    ids = torch.randint(5, 99, (2, 9), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    if subject.config.is_encoder_decoder:
        ids[0, -1] = ids[1, 5] = subject.config.eos_token_id
    ids = ids.masked_fill(mask == 0, subject.pad_token_id)
    whole, sites = Batch.of({"input_ids": ids, "attention_mask": mask}, subject), subject.sites
    differences, changes, rows = [], [], []
    for text in (whole.take(torch.tensor([0])), whole.alone(1)):
        with eager(subject.model):
            plain = subject.model(input_ids=text["input_ids"], attention_mask=text["attention_mask"]).logits
        read = subject.read(text, rows=True)
        differences.append(float((read.logits - plain).abs().max()))
        changes.append(float((subject.read(text, silence(sites.layers[-1])).logits - plain).abs().max()))
        length = text["input_ids"].shape[1]
        places = read.rows[0].nonzero().squeeze(1).tolist()
        named = {"all": list(range(length)), "first": [0], "last": [length - 1]}
        rows.append(next((name for name, positions in named.items() if places == positions), str(places)))
    return {
        "layers": len(sites.layers),
        "maps": sites.maps,
        "heads": subject.read(whole).maps[-1].weights.shape[1],
        "rows": " or ".join(dict.fromkeys(rows)),
        "together": sites.together,
        "embeddings": "embeddings" in subject.capabilities,
        "difference": max(differences),
        "own_difference": sites.difference,
        "change": max(changes),
    }


def small_translator(kind: str):
    """A small model of a type with random weights, in eval mode."""
    own = SEQUENCES_OWN.get(kind, {})
    if kind == "encoder-decoder":
        fields = {name: small_fields(part["model_type"]) | part for name, part in own.items()}
    else:
        forced = {"forced_eos_token_id", "forced_bos_token_id"} & set(vars(CONFIG_MAPPING[kind]()))
        fields = small_fields(kind) | own | dict.fromkeys(forced)
    fields = {"decoder_start_token_id": 0, "pad_token_id": 0, **fields}
    torch.manual_seed(0)
    return AutoModelForSeq2SeqLM.from_config(CONFIG_MAPPING[kind](**fields)).eval()


def read_sequences(model) -> dict[str, object]:
    """The row of a small model from sequences to sequences."""
    sites = subject_of(model).sites
    lacks = "; ".join(sorted(sites.lacks)) or "nothing"
    facts = {"layers": len(sites.layers), "heads": sites.heads[0], "together": sites.together, "lacks": lacks}
    return facts | {"own_difference": sites.difference}


@dataclass(frozen=True)
class Models:
    """The types of one Auto class, and how their small models are made and read."""

    name: str
    stem: str
    columns: tuple[str, ...]
    mapping: str
    make: Callable
    read: Callable

    def types(self) -> dict[str, str]:
        """The class of each type that transformers itself has."""
        names = getattr(modeling_auto, f"MODEL_FOR_{self.mapping}_MAPPING_NAMES")
        return {kind: name for kind, name in names.items() if isinstance(name, str) and hasattr(transformers, name)}


CLASSIFIERS = Models(
    "text classifiers",
    "architectures",
    ("layers", "maps", "heads", "rows", "together", "embeddings", "difference", "own_difference", "change"),
    "SEQUENCE_CLASSIFICATION",
    small_classifier,
    read_texts,
)
SEQUENCES = Models(
    "models from sequences to sequences",
    "sequence_architectures",
    ("layers", "heads", "together", "lacks", "own_difference"),
    "SEQ_TO_SEQ_CAUSAL_LM",
    small_translator,
    read_sequences,
)


def tried(kind: str, models: Models) -> dict[str, object]:
    """The row of a type."""
    row = {"type": kind, "class": models.types()[kind]}
    try:
        model = models.make(kind)
    except Exception as error:  # configurations and models raise many kinds
        return row | {"verdict": "not built", "reason": f"{type(error).__name__}: {excerpt(error, 200)}"}
    try:
        return row | {"verdict": "works", "reason": ""} | models.read(model)
    except AttnfaithError as error:
        built = "fails the check 'reading'" not in str(error)
        return row | {"verdict": "refused" if built else "not built", "reason": excerpt(error, 300)}


def tried_within_limit(kind: str, models: Models) -> dict[str, object]:
    """`tried`, in a process of its own that is ended after LIMIT seconds."""
    with get_context("fork").Pool(1) as process:
        try:
            return process.apply_async(tried, (kind, models)).get(LIMIT)
        except TimeoutError:
            reason = f"no result within {LIMIT} s"
            return {"type": kind, "class": models.types()[kind], "verdict": "not built", "reason": reason}


def page(table: pd.DataFrame, models: Models) -> str:
    """The table in Markdown, below what it counts."""
    works, refused, missing = (table[table["verdict"] == verdict] for verdict in ("works", "refused", "not built"))
    alone = ""
    if "difference" in works:
        alone = f"by at most {works['difference'].max():.1g} from the model's own under the same attention, and "
    text = (
        f"# {models.name.capitalize()} of transformers {transformers.__version__}\n\n{len(works)} of {len(table)} types "
        f"work, {len(refused)} are refused and {len(missing)} could not be built small. Where they work, logits read by the "
        f"hook differ {alone}by at most {works['own_difference'].max():.1g} of their size from those of the implementation "
        "that transformers chooses by itself.\n\n"
    )
    text += works.drop(columns=["verdict", "reason"]).to_markdown(index=False, floatfmt=".2g", intfmt="d") + "\n"
    for title, part in {"Refused": refused, "Not built": missing}.items():
        text += f"\n## {title}\n\n{part[['type', 'class', 'reason']].to_markdown(index=False)}\n" if len(part) else ""
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*", metavar="TYPE", help="those to try; default: all")
    parser.add_argument("--sequences", action="store_true", help="models from sequences to sequences, not classifiers")
    options = parser.parse_args()
    models = SEQUENCES if options.sequences else CLASSIFIERS
    types, path = models.types(), Path(__file__).with_name(f"{models.stem}.csv")
    if unknown := sorted(set(options.types) - set(types)):
        parser.error(f"transformers has no {models.name} of type {', '.join(unknown)}")
    warnings.simplefilter("ignore")
    rows = {row["type"]: row for row in pd.read_csv(path).to_dict("records")} if path.is_file() else {}
    for kind in options.types or types:
        rows[kind] = tried_within_limit(kind, models)
        print(kind, rows[kind]["verdict"], rows[kind].get("reason") or "", flush=True)
        table = pd.DataFrame([rows[name] for name in types if name in rows], columns=[*FACTS, *models.columns])
        table = table.astype({name: "Int64" for name in ("layers", "maps", "heads") if name in table})
        table.to_csv(path, index=False)
        path.with_suffix(".md").write_text(page(table, models), encoding="utf-8")


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    main()
