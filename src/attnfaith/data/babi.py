"""Generated question answering with one, two or three supporting facts, after tasks 1-3 of Weston et al. (2015).

A small world is simulated: people walk between places, pick objects up and put them down. Each event is a statement, and a
question about a place follows the last one.

    1  Where is a person? The person's last move decides.
    2  Where is an object? The last event that picked it up or put it down, and a move of that person, decide.
    3  Where was an object before a place? The event that picked it up and two moves of its carrier decide: into the
       earlier place and into the named one.

The stories follow the description of the tasks and share no text with the published files.
A row depends on (seed, stream, its index) and the arguments only.
"""

from typing import Annotated

from pydantic import Field

from attnfaith.data.generators import Number, checked
from attnfaith.data.registry import DATASETS


VERSION = 1
"""Raised whenever the same arguments give other rows."""

LOCATIONS = DATASETS["babi_1"].label_names
PEOPLE = ("alice", "boris", "carla", "dmitri")
OBJECTS = ("book", "key", "lantern")

STATEMENTS = {1: (2, 10), 2: (4, 16), 3: (6, 30)}
"""Least and greatest number of statements of a story, by task."""

_MOVES = ("went to", "walked to", "moved to", "hurried to", "returned to")
_TAKES = ("took", "picked up", "grabbed")
_DROPS = ("dropped", "put down", "left")


@checked
def generate(
    task: Annotated[int, Field(ge=1, le=3)],
    n: Number,
    seed: Number,
    *,
    stream: Number = 0,
) -> list[dict]:
    """n rows {"text": the story, "text_pair": the question, "label": index of the answer in `LOCATIONS`, "rationale": 0/1
    per word of the story}, words between blanks; 1 marks the words and the full stop of the supporting statements.

    Args:
        task: 1, 2 or 3, which is also the number of supporting statements.
        n: number of rows.
        seed, stream: the random stream; `stream` tells splits of one seed apart.

    Raises DatasetError for an unknown task.
    """
    import numpy as np

    low, high = STATEMENTS[task]
    return [_row(task, np.random.default_rng([seed, stream, index, task]), low, high) for index in range(n)]


def _row(task: int, rng, low: int, high: int) -> dict:
    length = int(rng.integers(low, high, endpoint=True))
    while True:  # until a story has a question of the task
        story = _Story(rng, objects=task > 1)
        for _ in range(length):
            story.step()
        questions = (story.people_questions, story.object_questions, story.before_questions)[task - 1]()
        if questions:
            question, answer, facts = questions[rng.integers(len(questions))]
            words = [sentence.split() for sentence in story.sentences]
            return {
                "text": " ".join(story.sentences),
                "text_pair": question,
                "label": LOCATIONS.index(answer),
                "rationale": [int(i in facts) for i, sentence in enumerate(words) for _ in sentence],
            }


class _Story:
    """A world and the statements about it, which are numbered by their position in `sentences`."""

    def __init__(self, rng, *, objects: bool):
        self.rng = rng
        self.objects = OBJECTS if objects else ()
        self.sentences: list[str] = []
        self.moves: dict[str, list[tuple[str, int]]] = {person: [] for person in PEOPLE}  # (place, statement)
        self.carrier: dict[str, str] = {}  # object -> person
        self.handled: dict[str, tuple[str, int]] = {}  # object -> (last person to take or drop it, statement)
        self.trail: dict[str, list[tuple[str, tuple]]] = {name: [] for name in self.objects}  # (place, facts)

    def _pick(self, options):
        return options[self.rng.integers(len(options))]

    def _state(self, sentence: str) -> int:
        self.sentences.append(f"{sentence} .")
        return len(self.sentences) - 1

    def place(self, person: str) -> str | None:
        return self.moves[person][-1][0] if self.moves[person] else None

    def step(self) -> None:
        """Add a statement: a move, or an object picked up or put down by a person whose place has been stated."""
        person = self._pick(PEOPLE)
        here = self.place(person)
        carried = [name for name in self.objects if self.carrier.get(name) == person]
        within_reach = [
            name
            for name in self.objects
            if here is not None and name not in self.carrier and (not self.trail[name] or self.trail[name][-1][0] == here)
        ]
        chance = self.rng.random()
        if within_reach and chance < 0.5:
            self._take(person, self._pick(within_reach), here)
        elif carried and chance < 0.2:
            name = self._pick(carried)
            del self.carrier[name]
            self.handled[name] = (person, self._state(f"{person} {self._pick(_DROPS)} the {name}"))
        else:
            self._move(person, here, carried)

    def _take(self, person: str, name: str, here: str) -> None:
        self.carrier[name] = person
        self.handled[name] = (person, self._state(f"{person} {self._pick(_TAKES)} the {name}"))
        if not self.trail[name]:
            self.trail[name].append((here, ()))

    def _move(self, person: str, here: str | None, carried: list[str]) -> None:
        there = self._pick([place for place in LOCATIONS if place != here])
        statement = self._state(f"{person} {self._pick(_MOVES)} the {there}")
        for name in carried:
            facts = (self.moves[person][-1][1], self.handled[name][1], statement)
            self.trail[name].append((there, facts))
        self.moves[person].append((there, statement))

    def people_questions(self) -> list[tuple]:
        return [(f"where is {person} ?", moves[-1][0], {moves[-1][1]}) for person, moves in self.moves.items() if moves]

    def object_questions(self) -> list[tuple]:
        """An object is where its carrier is now, or was when putting it down."""
        questions = []
        for name, (person, handled) in self.handled.items():
            moves = self.moves[person]
            if name not in self.carrier:
                moves = [move for move in moves if move[1] < handled]
            questions.append((f"where is the {name} ?", moves[-1][0], {handled, moves[-1][1]}))
        return questions

    def before_questions(self) -> list[tuple]:
        """The last change of place of each object, if the object had not been at the new place before."""
        questions = []
        for name, trail in self.trail.items():
            if len(trail) > 1 and trail[-1][0] not in [place for place, _ in trail[:-1]]:
                place, facts = trail[-1]
                questions.append((f"where was the {name} before the {place} ?", trail[-2][0], set(facts)))
        return questions
