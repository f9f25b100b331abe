"""The command line: what is typed ends in a result, or in exit code 2 and one line."""

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

from attnfaith import cli, record
from tests import records
from tests.campaigns.fuzz.hostile import NUMBERS, WORDS, damaged
from tests.campaigns.fuzz.probe import REFUSED, Case, Unclean, unclear


def called(words: Sequence[str], folder: Path, finals: Sequence[str] = ()) -> str:
    """Run a command in a folder; gives REFUSED or "".

    Raises Unclean unless it ends with 0, or with 2, one line and none of the files `finals`.
    """
    there, said = Path.cwd(), io.StringIO()
    before = {name for name in finals if (folder / name).exists()}
    os.chdir(folder)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                code = cli.main(list(words))
            except SystemExit as ended:
                code = ended.code or 0
    finally:
        os.chdir(there)
    if code == 0 or (code == 2 and not words[0] and not said.getvalue()):  # without a command the usage is shown
        return REFUSED if code else ""
    lines = [line for line in said.getvalue().splitlines() if line.startswith("error: ")]
    if code != 2 or len(lines) != 1 or "Traceback" in said.getvalue():
        raise Unclean(f"exit code {code} and {len(lines)} lines of error: {said.getvalue()[-300:]!r}")
    if wrong := unclear(lines[0]):
        raise Unclean(f"{wrong}: {lines[0][:300]!r}")
    if left := [name for name in finals if (folder / name).is_file() and name not in before]:
        raise Unclean(f"exit code 2, and {left} is left behind")
    return REFUSED


TYPED = [
    line.split()
    for line in """
list measures
list recipes sst --names
list data
show it.parquet 0
show it.parquet 1 2 --measures gradient
table it.parquet --rows encoder --columns measure
table it.parquet --rows dataset --columns quantity --where encoder=bilstm --output new.csv
compare it.parquet it.parquet --output new.csv
eraser it.parquet --output new --share 0.2
train --data.path mine.csv --seed 3 --encoder cnn
train --config mine.yaml --training.learning_rate 1e-3 --producers gradient lime
train --help
measure run --add lime --limit 5 --output new.parquet
measure model --data.path mine.csv --data.text text --attention rollout --output new
push run --to me --dry-run
cards run --to me --output new
reproduce run --output new --revision main
study study.yaml --dry-run
study study.yaml --processes 2
release study.yaml
completion bash
view model words --pair others --measure rollout --output new.html
report run --output new --examples 3
space model
help train
--version
""".strip().splitlines()
]
NEVER = ("space", "install-metric")  # serves until it is stopped; changes what other programs load
FILES = {
    "mine.csv": "text,label\ngood film,pos\nbad film,neg\n",
    "mine.yaml": "name: mine\noutput_dir: run_of_mine\nfoo: 1\n",
    "study.yaml": "output_dir: a\nresults: b\nblocks: [{recipe: mine.yaml}]\n",
}


class Arguments:
    """Words of commands, some of them replaced, taken away, exchanged, repeated or hostile; no command does long work."""

    name, inputs, batch = "command line", 1200, 150

    def __init__(self, folder: Path):
        record.save(records.draw(4), folder / "it.parquet")
        self.record = (folder / "it.parquet").read_bytes()

    def case(self, chance: Random, folder: Path) -> Case:
        (folder / "it.parquet").write_bytes(self.record)
        for name, text in FILES.items():
            (folder / name).write_text(text)
        words = [*chance.choice(TYPED)]
        for _ in range(chance.choice((1, 1, 2, 3))):
            place = chance.randrange(len(words) + 1)
            kind = chance.choice(("word", "gone", "insert", "insert", "option", "bytes", "twice"))
            if kind == "insert":
                words.insert(place, _word(chance))
            elif kind == "option":
                other = [one for typed in TYPED for one in typed if one.startswith("--")]
                words.insert(place, chance.choice(other) + chance.choice(("", "", "=", f"={_word(chance)}")))
            elif place < len(words) and kind == "word":
                words[place] = _word(chance)
            elif place < len(words) and kind == "gone":
                del words[place]
            elif place < len(words) and kind == "twice":
                words.insert(place, words[place])
            elif place < len(words):
                words[place] = damaged(chance, words[place].encode("utf-8", "surrogateescape"))[0].decode(
                    "utf-8", "surrogateescape"
                )
            words = words or [""]
        if words[0] == "train" and not any(word.startswith(("--config", "--data")) for word in words):
            words += ["--config", "mine.yaml"]  # else it trains the quickstart, which takes its time
        if words[0] in NEVER:
            words.append("--help")
        words = [word[:5000].replace("\0", "") for word in words]  # the system passes no NUL and no endless word on
        return Case(lambda: called(words, folder, ("new.csv", "new.html", "new.parquet")), repr(words)[:600])


def _word(chance: Random) -> str:
    if chance.random() < 0.3:
        try:
            return str(chance.choice(NUMBERS))
        except ValueError:  # of too many digits
            return "9" * 400
    word = chance.choice(
        (*WORDS, "it.parquet", "mine.csv", "mine.yaml", "study.yaml", ".", "nobody/nothing", "a=b", "=", "--")
    )
    return word.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
