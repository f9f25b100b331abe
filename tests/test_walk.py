"""How much of the package one measure of one text enters: what a reader who follows the call has to read."""

import sys
from pathlib import Path

import torch

import attnfaith
from attnfaith import loading
from attnfaith.data.tokenization import build_tokenizer


PACKAGE = Path(attnfaith.__file__).parent
MOST_FILES, MOST_FUNCTIONS = 27, 130
"""The most that is entered today: lower the bounds with every step."""


def entered(call):
    """The functions of the package that a call enters, {(file, name)}; comprehensions and lambdas are parts of theirs."""
    functions = set()

    def profile(frame, event, argument):
        code = frame.f_code
        if event == "call" and not code.co_name.startswith("<") and Path(code.co_filename).is_relative_to(PACKAGE):
            functions.add((str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return functions


def test_one_measure_of_one_text_enters_few_files_and_functions(tiny_model, tmp_path):
    words = build_tokenizer(["a moving portrait", "a clumsy film"], preprocessing="default", min_df=1)
    tiny_model(vocab_size=len(words)).to(torch.float32).save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")

    def measure():
        loading._from_folder.cache_clear()
        attnfaith.measure(tmp_path / "model", ["a text"], measures=["leave_one_out"], progress=False)

    measure()  # what is imported once is no part of the walk
    functions = entered(measure)
    files = sorted({file for file, _ in functions})
    listed = "\n".join(f"{file}: {sum(file == other for other, _ in functions)}" for file in files)
    within = len(files) <= MOST_FILES and len(functions) <= MOST_FUNCTIONS
    assert within, f"{len(files)} files, {len(functions)} functions\n{listed}"
