"""The models, tokenizers and texts of the goldens, of measured.yaml, and how they are measured."""

import functools
from pathlib import Path

import numpy as np
import torch
import transformers
import yaml
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

import attnfaith
from tests.golden import values


HERE = Path(__file__).parent
CHECKPOINTS = HERE / "checkpoints"
PLAN = yaml.safe_load((HERE / "measured.yaml").read_text(encoding="utf-8"))
SUBJECTS, FAMILIES = PLAN["subjects"], PLAN["checkpoints"]
WORDS = PLAN["words"].split()


def configuration(name: str):
    """The configuration of a model; a class where the plan names a text_config becomes one."""
    fields = {key: value for key, value in PLAN["models"][name].items() if key not in ("config", "seed", "gain")}
    kind = PLAN["models"][name]["config"]
    if "text_config" in fields:
        fields["text_config"] = transformers.BertConfig(**PLAN["sizes"]["BertConfig"])
    return getattr(attnfaith if hasattr(attnfaith, kind) else transformers, kind)(**PLAN["sizes"][kind] | fields)


def auto_class(name: str):
    return transformers.AutoModelForSeq2SeqLM if of_pairs(name) else transformers.AutoModelForSequenceClassification


def of_pairs(name: str) -> bool:
    return name == "marian" or "translator" in name


@functools.cache
def model(name: str):
    """The model in float64 and evaluation mode, its weights drawn from (seed, name of the parameter).

    numpy makes uniform numbers of integers by one multiplication, alike on every processor. torch's normal float32 numbers
    differ between ATEN_CPU_CAPABILITY=default and avx2. Weights are rounded to float32: a checkpoint holds them exactly.
    """
    drawn, seed, gain = auto_class(name).from_config(configuration(name)), *map(PLAN["models"][name].get, ("seed", "gain"))
    with torch.no_grad():
        for key, parameter in drawn.named_parameters():
            numbers = np.random.default_rng([seed, *key.encode()]).uniform(-1, 1, tuple(parameter.shape))
            if parameter.dim() == 1:
                numbers = 0.3 * numbers + float((parameter == 1).all())  # the weight of a norm starts at 1
            elif not any(part in key for part in ("embed", "wte", "wpe", "shared")):
                numbers *= gain * (3 / min(parameter.shape[-2:])) ** 0.5
            parameter.copy_(torch.from_numpy(numbers.astype(np.float32)))
    return drawn.double().eval()


@functools.cache
def tokenizer(name: str):
    """The tokenizer of a model; those of this package are in checkpoints, as people have them."""
    roles = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    pieces = [word for word in WORDS if word not in ("ship", "music")] + ["sh", "mus", "##ip", "##ic"]
    if "bert" in name or name == "gpt2":
        return wordpieces(pieces, None if name == "gpt2" else "[CLS] $A [SEP]", roles)
    if of_pairs(name):
        roles = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
        return wordpieces(PLAN["pair_words"].split(), "$A </s>", roles)
    return transformers.AutoTokenizer.from_pretrained(CHECKPOINTS / (name if name in PLAN["with_tokenizer"] else "bilstm"))


def wordpieces(words, template: str | None, roles):
    """A tokenizer of subwords; its special tokens come first."""
    vocabulary = {word: number for number, word in enumerate((*roles.values(), *words))}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=roles["unk_token"]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if template:
        marks = [(mark, vocabulary[mark]) for mark in roles.values()]
        backend.post_processor = TemplateProcessing(single=template, special_tokens=marks)
    names = ["input_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=names, **roles)


def groups(subject: str) -> dict[str, list[str]]:
    """What is measured together: every name of the catalogue in one group, and the options that are not the default."""
    listed = attnfaith.measures("pairs" if of_pairs(subject) else "texts")["kind"]
    parts = {"measures": list(listed.index[listed == "importance"]), "interventions": [], "explanations": [], "searches": []}
    for name in listed.index[listed == "intervention"]:
        parts[next((kind for kind in ("explanations", "searches") if name in PLAN[kind]), "interventions")].append(name)
    parts["otherwise"] = list(PLAN["otherwise"].get(subject, ()))
    return {group: sorted(names) for group, names in parts.items() if names}


def measured(subject: str, names, group: str = "measures") -> attnfaith.Record:
    """The record of a subject by these names of measures and experiments, in a group's options."""
    named, name = {values.MEASURES.get(name, name): name for name in names}, subject
    options = PLAN["otherwise"][subject] if group == "otherwise" else PLAN["few"]
    how = {"options": {today: options[name] for today, name in named.items() if name in options}, "add": [*named]}
    how |= {"tokenizer": tokenizer(name), "name": "golden", "progress": False, **SUBJECTS[subject]}
    if of_pairs(subject):
        return attnfaith.measure(model(name), [*map(tuple, PLAN["pairs"])], None, [], links=PLAN["links"], **how)
    return attnfaith.measure(model(name), marked(PLAN["texts"], "rationale", "impermissible"), PLAN["labels"], [], **how)


def marked(texts, *marks: str) -> Dataset:
    """Texts with the words that decide and those that a deceptive model would hide."""
    texts, some = list(texts), {"rationale": PLAN["decisive"], "impermissible": PLAN["hidden"]}
    marked = {mark: [[int(word in some[mark]) for word in text.split()] for text in texts] for mark in marks}
    return Dataset.from_dict({"text": texts, **marked})


def columns(subject: str, group: str, names) -> dict[str, list]:
    """The columns that the measures of a group give a subject now."""
    tested = PLAN["tested"] if group == "explanations" else ()
    return values.columns_of(measured(subject, [*names, *tested], group).table)
