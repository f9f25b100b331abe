"""Where sentences end: by hand, by properties, and what a tokenizer makes of them."""

import string

import hypothesis
import hypothesis.strategies as st
import pytest
from tokenizers import normalizers

from attnfaith.data.sentences import ABBREVIATIONS, MARK, NUMBERED, divide, mark_places, set_marks
from attnfaith.data.tokenization import PREPROCESSING, build_tokenizer, encode, split_words
from tests.splits import rows


def sentences(text, **limits):
    """The sentences of a text that is only divided, in its own spelling."""
    marked = normalizers.Sequence([*mark_places(), *set_marks(**limits)]).normalize_str(text)
    return [" ".join(words) for words in divide(marked.split())]


def tokenizer_for(texts, **arguments):
    return build_tokenizer(texts, **{"preprocessing": "words", "hierarchy": "sentence", **arguments})


@pytest.mark.parametrize(
    "expected",
    [
        ["I came.", "I saw!", "Did I win?!", "Yes…", "42 times."],
        ['He said "No."', "Then (he left.)", "“Really?”", "[Ok.]", "'Go!'", "Émile went.", "Ärger."],
        ["It cost 3.50 or 1,000.", "Version 2.0 is out at www.a.com today."],
        ["What? he asked! and left. then came back."],  # no capital: not told from an abbreviation
        ["Wait... what?", "Well...", "Then no."],
        ["Dr. Smith and Mrs. Lee met J. R. Brown vs. Gen. Grant, e.g. The one.", "So did I.", "He slept."],
        ["DR. NO met the U.S. Army, cf. Smith.", "See no. 5, Fig. 2 and pp. 7.", "I said no.", "He left."],
        # as they come when split into words already
        ["two couples drive .", "they get hurt !", "why ? !", '" ok " .', "( so what ? )", "it ended . . . as it had to ."],
        ["mr . smith and j . r . brown went .", "so did i .", "see no . 5 .", "i said no .", "` ` yes . ''", "he left ."],
        ["so it is -lrb- he said . -rrb-", "and so , on"],
    ],
)
def test_by_hand(expected):
    assert sentences(" ".join(expected)) == expected
    assert sentences("  \t".join(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\r\n\n three<br /><br>four<BR/>\n", ["one", "two", "three", "four"]),
        ("so it ended\n. then\n, well", ["so it ended .", "then , well"]),  # a line that cannot start a sentence
        (" \n\n <br /> ", []),
        ("...", ["..."]),
        ("\U00010600 a \U00010600\U00010600 b", ["a b"]),  # the letter that stands for the mark
    ],
)
def test_lines_and_edges(text, expected):
    assert sentences(text) == expected


def test_every_abbreviation():
    for word in (*ABBREVIATIONS, *NUMBERED):
        for form in (word, word.capitalize(), word.upper()):
            follows = "7 Up" if word in NUMBERED else "Up"
            assert sentences(f"So {form}. {follows}. Next") == [f"So {form}. {follows}.", "Next"]
            assert sentences(f"so {form} . {follows.lower()} . next") == [f"so {form} . {follows.lower()} .", "next"]
        longer = f"x{word.replace('.', '')}"
        assert sentences(f"It is {longer}. Up. Next") == [f"It is {longer}.", "Up.", "Next"]


any_text = st.text(string.ascii_letters + string.digits + string.punctuation + " .\t\nÉß", max_size=80)


@pytest.mark.slow
@hypothesis.settings(max_examples=60)
@hypothesis.given(any_text, st.sampled_from(sorted(PREPROCESSING)), st.integers(1, 4), st.integers(3, 12))
def test_properties(text, preprocessing, longest, max_length):
    """Words are those of a flat tokenizer, no sentence is empty or too long, and encoding agrees with the tokenizer."""
    text = text.replace("<", "(")  # line breaks of HTML are removed
    flat = build_tokenizer([text], preprocessing=preprocessing)
    limited = tokenizer_for([text], preprocessing=preprocessing, max_sentence_length=longest)
    tokens = limited.convert_ids_to_tokens(limited(text)["input_ids"])[1:-1]
    actual = divide(tokens)
    whole = [word for sentence in actual for word in sentence]
    words, marked = (split_words([text], tokenizer.backend_tokenizer.normalizer)[0] for tokenizer in (flat, limited))
    assert words == whole and divide(marked) == actual
    assert MARK not in tokens[:1] + tokens[-1:] and tokens.count(MARK) == max(0, len(actual) - 1)
    assert all(len(sentence) <= longest for sentence in actual)
    (row,) = encode(rows([text]), limited, max_length=max_length)
    assert row["input_ids"] == limited(text, truncation=True, max_length=max_length)["input_ids"]
    assert divide(limited.convert_ids_to_tokens(row["input_ids"])[1:-1]) == row["words"]
    stored = [word for sentence in row["words"] for word in sentence]
    assert stored == whole[: len(stored)] and row["truncated"] == (len(stored) < len(whole))


def test_a_text_cannot_forge_the_mark():
    text = f"good {MARK} film {MARK.upper()} \U00010600 good"
    for preprocessing in PREPROCESSING:
        tokenizer = tokenizer_for([text], preprocessing=preprocessing)
        assert tokenizer.sentence_token_id not in tokenizer(text)["input_ids"]
        assert tokenizer.get_vocab()[MARK] == tokenizer.sentence_token_id == 4


def test_encode_by_hand():
    marks = [[0, 0, 0, 0, 0, 1, 0, 0], [], [1], [0, 0, 0, 1, 0, 0, 0, 0, 0, 1]]
    split = rows(["A dog. The cat sat here.", "", "Unseen", "A. The cat. A dog. Dog."], rationale=marks)
    tokenizer = tokenizer_for(["a dog the cat sat here ."], max_sentence_length=4)
    encoded = encode(split, tokenizer)
    assert encoded["words"][:] == [
        [["a", "dog", "."], ["the", "cat", "sat", "here"], ["."]],
        [],
        [["unseen"]],
        [["a", ".", "the", "cat"], ["."], ["a", "dog", "."], ["dog", "."]],
    ]
    assert encoded["tokens"][:] == [list(map(" ".join, document)) for document in encoded["words"][:]]
    assert encoded["rationale"][:] == [[0, 1, 0], [], [1], [1, 0, 0, 1]]
    assert not any(encoded["truncated"][:]) and encoded["n_unknown"][:] == [0, 0, 1, 0]
    cut = encode(split, tokenizer, max_length=8)
    assert cut["words"][:] == [[["a", "dog", "."], ["the", "cat"]], [], [["unseen"]], [["a", ".", "the", "cat"], ["."]]]
    assert cut["rationale"][:] == [[0, 0], [], [1], [1, 0]] and cut["truncated"][:] == [True, False, False, True]
    after_mark = encode(split, tokenizer, max_length=6)  # the last id that is read is a mark
    assert after_mark["words"][0] == [["a", "dog", "."]] and after_mark["truncated"][0]
