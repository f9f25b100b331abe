"""Text classifiers of transformers, of any type, small and with random weights, and tokenizers that suit them."""

import functools
import importlib.util

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from attnfaith.recipes import folder as shipped
from attnfaith.subjects import Batch, SelfAttention


WORDS = "the a old new ship sank sailed slowly never was good bad film music and but very ! . ##s ##ing ##ed".split()
MARKERS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")


@functools.cache
def architectures():
    """The recipe that makes a small classifier of every type."""
    path = shipped() / "any_classifier" / "architectures.py"
    spec = importlib.util.spec_from_file_location("architectures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def classifier(kind: str, seed: int = 0, **fields):
    """A small classifier of a type, in eval mode."""
    return architectures().small_classifier(kind, seed, **fields)


def tokenizer(markers: bool = True, **fields):
    """Of the small classifiers' words; markers: whether it puts any around a text, as a BERT's, or none, as a GPT's."""
    vocabulary = {word: number for number, word in enumerate((*MARKERS, *WORDS))}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    roles = {"unk_token": "[UNK]", "mask_token": "[MASK]"}
    if markers:
        roles |= {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        backend.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, model_input_names=["input_ids", "token_type_ids", "attention_mask"], **roles, **fields
    )


def texts(model, lengths=(11, 7), seed: int = 0) -> dict[str, torch.Tensor]:
    """Random texts (B,L), as a tokenizer would give them to the model, padded on the right."""
    ids = torch.randint(5, 99, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    for row, length in enumerate(lengths):
        if model.config.is_encoder_decoder:
            ids[row, length - 1] = model.config.eos_token_id
        ids[row, length:] = 0
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return {"input_ids": ids, "attention_mask": mask.long()}


def batch_of(subject: SelfAttention, lengths, seed: int = 0) -> Batch:
    """Texts of so many tokens, between two markers where the model has them."""
    markers = 0 if subject.config.model_type == "gpt2" else 2
    inputs = texts(subject.model, [length + markers for length in lengths], seed)
    for row, length in enumerate(lengths if markers else ()):
        inputs["input_ids"][row, 0], inputs["input_ids"][row, length + 1] = 1, 2
    return Batch.of(inputs, subject)


def biased(kind: str = "bert", **fields):
    """A small classifier in float64 whose biases are not 0, its subject, and a batch of two texts."""
    model = classifier(kind, **fields).double()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    subject = SelfAttention(model)
    return model, subject, Batch.of(texts(model), subject)
