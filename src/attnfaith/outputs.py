"""What a model says of the texts it was measured on, read back from a record, and fingerprints of model and texts by which
it is known to be of them.
"""

import hashlib
import json
import os
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from attnfaith import record
from attnfaith.data.in_memory import pieces
from attnfaith.errors import AttnfaithError


KEPT = ("word_of_token", "text_of_token", "rationale", "query_tokens")
"""Columns of the data that a record keeps as they are."""


class OutputsError(AttnfaithError):
    """Outputs that cannot be used. The message says why and what to do."""


def hash_of_weights(model):
    """A SHA-256 that has read the names and values of a model's weights."""
    digest = hashlib.sha256()
    for name, values in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest


def digest_model(model) -> str:
    """SHA-256 of a model's weights and of what they do not tell: a fingerprint of what it computes."""
    digest = hash_of_weights(model)
    config = model.config  # what the weights and their shapes do not tell
    told = [
        record.projection_label(config.projection, config.projection_parameter),
        config.markers,
        config.num_attention_heads,
    ]
    told += [] if config.score_scale is None else [config.score_scale]
    told += [] if config.hierarchy == "none" else [config.hierarchy, config.sentence_token_id]
    digest.update(json.dumps(told).encode())
    return digest.hexdigest()


def digest_data(dataset) -> str:
    """SHA-256 of an encoded data set: ids, texts, input ids, labels, candidates, marks and questions, in its order."""
    digest = hashlib.sha256()
    names = ("instance_id", "input_ids", "token_type_ids", "labels", "tokens", "words", "truncated", "candidates")
    names = (*names, *KEPT, "impermissible", "target_tokens", "source_words", "target_words", "gold_links")
    names = [name for name in names if name in dataset.column_names]
    digest.update(repr(names).encode())
    for part in pieces(dataset, names):
        digest.update(repr(part.to_pydict()).encode())
    return digest.hexdigest()


def digest_attention(attention: Mapping[str, np.ndarray], dataset) -> str:
    """SHA-256 of the weights given for the texts of an encoded data set, {instance id: [T]}, in its order."""
    digest = hashlib.sha256()
    for name in dataset["instance_id"]:
        digest.update(name.encode() + b"\0" + np.asarray(attention[name], np.float32).tobytes())
    return digest.hexdigest()


def read_outputs(path: str | os.PathLike, dataset, model: str) -> pa.Table:
    """What a model says of an encoded data set, from the record at `path`: instance_id, probs [C] and attention [T].

    One row per instance of the data set, in its order; rows are found by instance_id, never by their place in the record.
    model: `digest_model` of the model the record must come from.

    Raises OutputsError where no record lies there, instances are missing, texts have other lengths than the record's,
    or the record was made by another model or of other texts, labels or another vocabulary.
    """
    try:
        table = record.load(path)
    except record.RecordError as error:
        raise OutputsError(f"{path} cannot be used: {error}") from error
    made = record.settings(table)
    if len(made) != 1 or not {"model", "data", "identity"} <= set(made[0]):
        raise OutputsError(f"{path} does not say which model and texts it comes from: measure them anew")
    if made[0]["model"] != model:
        raise OutputsError(
            f"{path} was made by another model than the one beside it (weights {made[0]['model'][:16]}, not {model[:16]}): "
            "measure that one anew"
        )
    names = dataset.with_format("arrow")["instance_id"]
    names = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else pa.array(names)
    places = pc.index_in(names, table.column("instance_id").combine_chunks())
    if places.null_count:
        first = names.filter(places.is_null())[0]
        raise OutputsError(
            f"{path} has no row for {places.null_count} of {len(names)} texts, such as '{first}': both runs need "
            "the same data set, limits and seed of the data"
        )
    outputs = table.select(["instance_id", "probs", "attention"]).take(places)
    lengths = np.array([len(tokens) for tokens in dataset["tokens"]])
    theirs = pc.list_value_length(outputs.column("attention")).to_numpy()
    if (wrong := np.flatnonzero(lengths != theirs)).size:
        row = wrong[0]
        raise OutputsError(
            f"{path} gives '{names[row]}' {theirs[row]} weights and the text has {lengths[row]} tokens: both runs must cut "
            "texts at the same data.max_length"
        )
    if made[0]["data"] != digest_data(dataset):
        raise OutputsError(
            f"{path} was made of other texts, labels or another vocabulary: both runs must have the same data section and "
            "the same files behind it"
        )
    return outputs
