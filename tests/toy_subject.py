"""A second subject, as small as one can be: attention over embeddings without an encoder, decoded by a tanh."""

import hashlib
from contextlib import nullcontext

import torch
from datasets import Dataset
from torch import nn

from attnfaith.data.collation import keep_positions, pad_batch
from attnfaith.subjects import Batch, Subject


WORDS, SIZE = 60, 8
MARKERS = (2, 3)


class Toy(nn.Module):
    """A bag of embeddings: a_t = softmax(x_t . u), logits W tanh(V sum_t a_t x_t). It has no states to speak of."""

    kind = "toys of the tests"
    can = capabilities = frozenset(
        {"classes", "embeddings", "embedding length", "held attention", "token deletion", "intervention"}
        | {"attention gradients"}
    )
    pad_token_id, unknown_token_id = 0, 1
    level, class_names = "token", ()

    def __init__(self, num_labels=2, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.num_labels = num_labels
        self.table, self.query = nn.Embedding(WORDS, SIZE), nn.Parameter(2 * torch.randn(SIZE))
        self.inner, self.outer = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, num_labels)
        self.eval()

    @property
    def device(self):
        return self.query.device

    def collate(self, rows):
        names = {"input_ids", "impermissible"} & set(rows[0])
        batch = pad_batch([{name: row[name] for name in names} for row in rows], 0)
        names = {"instance_id": [row["instance_id"] for row in rows]} if "instance_id" in rows[0] else {}
        return Batch.of({**batch, **names, "label": [row.get("labels") for row in rows]}, self)

    def rows(self, texts):
        """Texts of numbers, such as "7 12"."""
        labels = texts["label"] if "label" in texts.column_names else None
        columns = {"instance_id": texts["instance_id"], "tokens": [text.split() for text in texts["text"]]}
        columns["input_ids"] = [[2, *map(int, tokens), 3] for tokens in columns["tokens"]]
        columns["length"] = [len(ids) for ids in columns["input_ids"]]
        columns["truncated"] = [False] * len(texts)
        return Dataset.from_dict(columns | ({"labels": labels} if labels is not None else {}))

    def identity(self):
        return {"model": "toy", "encoder": "embedding", "projection": "softmax"}

    def digest(self):
        weights = [values.numpy().tobytes() for _, values in sorted(self.state_dict().items())]
        return hashlib.sha256(b"".join(weights)).hexdigest()

    def check(self, dataset):
        """Everything suits it."""

    def evaluating(self):
        return nullcontext()

    def attendable(self, batch):
        ids = batch["input_ids"]
        return batch["attention_mask"].bool() & ~torch.isin(ids, torch.tensor(MARKERS, device=ids.device))

    def items(self, batch):
        return None

    def embed(self, batch):
        return self.table(batch["input_ids"])

    def vocabulary(self):
        return self.table.weight

    def _attend(self, batch, embedded):
        scores = (embedded * self.query).sum(-1).masked_fill(~self.attendable(batch), -torch.inf)
        return scores.softmax(-1).nan_to_num()  # of a text without tokens it is 0

    @torch.no_grad()
    def attention(self, batch):
        return self._attend(batch, self.embed(batch))

    def _decode(self, attention, embedded):
        return self.outer(self.inner(attention @ embedded).tanh())

    def predict(self, batch, embedded=None, *, hold=False):
        if embedded is None:
            with torch.no_grad():
                return self.predict(batch, self.embed(batch))
        attention = self._attend(batch, embedded)
        return self._decode((attention.detach() if hold else attention).unsqueeze(1), embedded).squeeze(1)

    def intervene(self, batch, attention):
        embedded = self.embed(batch).detach()
        if attention.dim() == 2:
            return self._decode(attention.unsqueeze(1), embedded).squeeze(1)
        return self._decode(attention, embedded)

    attention_products = Subject.attention_products

    def keep(self, batch, stays):
        names = {name: batch[name] for name in ("instance_id", "label")}
        return Batch.of({**keep_positions(batch, stays, 0), **names}, self)
