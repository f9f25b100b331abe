"""Texts and documents of any shape, from encoding to the report: empty texts are counted and never scored."""

import datasets
import pytest

from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification, record
from attnfaith.data.tokenization import build_tokenizer, encode
from attnfaith.measurement.engine import measure
from attnfaith.record import Identity
from attnfaith.reporting import performance_table, write_report
from attnfaith.subjects import subject_of
from tests.gates import options_of
from tests.measuring import POOLED


DOCUMENTS = {
    "one sentence": "A short one .",
    "no end": "words without any end " * 6,
    "many": "Yes . No , it is . " * 60,
    "empty": "",
    "blank": " \n ",
    "one word": "Yes",
    "marks": ". . . ! ?",
    "long sentence": f"Short . {'very ' * 9}long . Short .",
    "two alone": "Yes .\nNo .",
}
OPTIONS = {  # few draws
    "adversary_search": {"steps": 3, "restarts": 2},
    "permutation": {"draws": 5},
    "random_support": {"draws": 2},
    "soft_erasure": {"draws": 2},
    "kernel_shap": {"samples": 16},
    "lime": {"samples": 16},
    "integrated_gradients": {"tolerance": 1e6},
}
AFFINE = {"exact_contribution", "token_logits", "weight_aopc_limits"}


@pytest.mark.slow
@pytest.mark.parametrize("query", ["learned", "text"])
def test_documents_of_any_shape(query, tmp_path, quick_report):
    """One value for each sentence by every measure and experiment; what one sentence does not have is undefined."""
    pair = query == "text"
    texts = {name: text for name, text in DOCUMENTS.items() if not (pair and name == "many")}
    rows = {"instance_id": list(texts), "text": list(texts.values()), "label": [n % 3 for n in range(len(texts))]}
    rows["impermissible"] = [[int(word == "Short") for word in text.split()] for text in texts.values()]
    if pair:
        rows["text_pair"] = ["Which one ? No ." if number % 2 else "" for number in range(len(texts))]
    tokenizer = build_tokenizer(
        rows["text"], preprocessing="whitespace", pair=pair, hierarchy="sentence", max_sentence_length=8
    )
    sizes = {"vocab_size": len(tokenizer), "embedding_size": 4, "hidden_size": 4, "num_labels": 3, "encoder": "bigru"}
    hierarchy = {"hierarchy": "sentence", "sentence_token_id": tokenizer.sentence_token_id}
    config = AttentionClassifierConfig(**sizes, **hierarchy, query=query, readout="tanh" if pair else "affine")
    encoded = encode(datasets.Dataset.from_dict(rows), tokenizer)
    lengths = dict(zip(texts, map(len, encoded["words"]), strict=True))
    # 24 words are three sentences of 8 or fewer; 10 are two
    expected = {"one sentence": 1, "one word": 1, "no end": 3, "many": 120, "blank": 0, "long sentence": 4, "two alone": 2}
    assert {name: lengths.get(name, 120) for name in expected} == expected and not any(encoded["truncated"])
    model = AttentionClassifierForSequenceClassification(config)
    batch = subject_of(model).collate(encoded.select([0]).to_list())
    options = {**OPTIONS, "diffmask": options_of("diffmask", model, batch)}
    long = {"gradient_hidden_to_input", "aopc_limits"}
    producers, path = sorted(set(POOLED) - long - (AFFINE if pair else set())), tmp_path / "record.parquet"
    identity = Identity("documents", "1", "test", 0)
    table = record.load(measure(model, encoded, identity, producers, path, options=options, progress=False))
    assert table.column("instance_id").to_pylist() == list(texts)
    for name in ("attention", "importance_gradient", "importance_leave_one_out", "erasure_probs"):
        assert [len(row) for row in record.rows(table, name)] == list(lengths.values())
    for name in ("permuted_probs", "adversary_exact_jsd", "adversary_search_attention", "random_support_attention"):
        assert [len(row) > 0 for row in record.rows(table, name)] == [length > 1 for length in lengths.values()], name
    for tokens, words in zip(table.column("tokens").to_pylist(), table.column("words").to_pylist(), strict=True):
        assert tokens == [" ".join(sentence) for sentence in words] and max(map(len, words), default=0) <= 8
    assert performance_table(table)["n_empty"].item() == list(lengths.values()).count(0)
    assert write_report(table, tmp_path / "report", n_examples=2).is_file()
