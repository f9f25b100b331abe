"""Identities of cells that tests make up, written as short as a row of a table."""

from attnfaith import record as records


def typed(
    projection="softmax", alignment="additive", objective="classification", vectors="random(0.25)", **fields
) -> records.Identity:
    """The identity of a cell, some of its fields written as tables show them: "sparsegen(0.5)",
    "classification(attention rate x 10)", "adversarial(jsd, 1, frozen)", "guided(bilstm+additive+softmax)".
    """

    def split(label):
        name, _, inside = label.partition("(")
        return name, inside[:-1].split(", ") if inside else []

    values = {"dataset": "sst", "texts": "abc", "training_texts": "def", "split": "test", "seed": 0} | fields
    values["projection"], parameter = split(projection)
    values["projection_parameter"] = float(parameter[0]) if parameter else None
    values["alignment"] = alignment
    values["vectors"], spread = split(vectors)
    values["vectors_scale"] = float(spread[0])  # of random vectors
    values["objective"], parts = split(objective)
    for part in parts:
        if part.startswith("attention rate x "):
            values["attention_rate"] = float(part.removeprefix("attention rate x "))
        elif part.startswith("tokens erased "):
            values["random_erasure"] = float(part.removeprefix("tokens erased "))
    if values["objective"] == "adversarial":
        values |= {"adversary_divergence": parts[0], "adversary_weight": float(parts[1]), "adversary_frozen": len(parts) > 2}
    if values["objective"] == "guided":
        values |= {"base": ", ".join(parts), "attention_kind": "given"}
    identity = records.Identity(**values)
    stated = alignment if identity.reduction is None else f"{alignment}({identity.attention_label})"
    assert identity.heading["projection"] == projection and identity.heading["alignment"] == stated
    assert identity.heading["objective"] == objective and identity.heading["vectors"] == vectors
    return identity


def columns_of(identity) -> dict:
    """The columns of a record that name a cell, of one row."""
    return {name: values[0] for name, values in records.as_columns(identity, 1).items()}
