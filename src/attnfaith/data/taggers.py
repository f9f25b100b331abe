"""Parts of speech by taggers that are installed.

This package has no tagger. An installed package offers one by an entry point of the group "attnfaith.taggers":

    [options.entry_points]
    attnfaith.taggers =
        mine = my_package:tags

where `tags` maps the words of a text, a list of str, to as many universal tags.
"""

import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points

from attnfaith.support.errors import DatasetError, counted, excerpt


GROUP = "attnfaith.taggers"
UNIVERSAL = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)
"""The tags of Universal Dependencies, version 2."""
Tagger = Callable[[Sequence[str]], Sequence[str]]


def is_punctuation(word: str) -> bool:
    """Whether a word, or words between blanks, consists of punctuation (Unicode category P)."""
    return {unicodedata.category(character)[0] for character in word if not character.isspace()} == {"P"}


@cache
def tagger_of(name: str) -> Tagger:
    """Return the tagger of this name, which raises DatasetError for a missing or unknown tag.

    Raises DatasetError for a name that no installed package offers.
    """
    offered = {"denckring": None, **{entry.name: entry for entry in entry_points(group=GROUP)}}
    if name not in offered:
        raise DatasetError(
            f"no tagger is called {excerpt(name)}; there are {', '.join(sorted(offered))}. A package offers another "
            f"by an entry point of the group '{GROUP}'"
        )
    tag = _denckring() if offered[name] is None else offered[name].load()

    def checked(words: Sequence[str]) -> list[str]:
        tags = list(tag(list(words)))
        if len(tags) != len(words):
            raise DatasetError(
                f"the tagger '{name}' has {counted(len(tags), 'tag')} for {counted(len(words), 'word')}; each needs one"
            )
        wrong = [label for label in tags if label not in UNIVERSAL]
        if wrong:
            raise DatasetError(
                f"the tagger '{name}' has the tag {excerpt(wrong[0])}; tags are those of Universal Dependencies: "
                f"{', '.join(UNIVERSAL)}"
            )
        return tags

    return checked


def _denckring() -> Tagger:
    """English, by a perceptron trained on the UD English Web Treebank, whose weights are JSON."""
    try:
        from denckring_en_pos import tagger
    except ImportError as error:
        raise DatasetError("the tagger 'denckring' is not installed: pip install 'attnfaith[tagger]'") from error
    model = tagger()

    def tag(words: Sequence[str]) -> list[str]:
        # it was trained without punctuation; a label is a tag and a form of the verb, as in AUX|Fin
        labels = iter(model.tag([word for word in words if not is_punctuation(word)]))
        return ["PUNCT" if is_punctuation(word) else next(labels).partition("|")[0] for word in words]

    return tag
