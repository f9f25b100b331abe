"""Marks of impermissible words, for tests of all that is measured."""


def marked(rows):
    """Encoded instances, a third of whose words are impermissible; no marker is."""
    return [{**row, "impermissible": [int(word > 4 and word % 3 == 0) for word in row["input_ids"]]} for row in rows]
