"""The measures: their base class, their registry, and the checks of names and options.

A measure computes columns of a record from a model and a batch of texts. A measure of importance scores tokens; an
intervention changes attention or the text and reads the model again. Names are checked without importing torch.
"""

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import ClassVar, Literal, TypeVar, dataclass_transform

from attnfaith.record import Column
from attnfaith.support.errors import AttnfaithError, excerpt, nearest


GROUP = "attnfaith.measures"
"""The group of entry points by which an installed package adds measures: name = module:Class."""
READS = ("texts", "pairs")
"""What measures read: texts with classes, or pairs of a source and a target sentence."""
COSTS = {
    "nothing": "the model is not asked",
    "reading": "about what reading the text once costs",
    "gradient": "a few readings with gradients",
    "tokens": "a reading or a gradient for every token, or more",
    "draws": "as many readings as it takes steps or draws samples",
}
"""What a measure's `cost` may be, cheapest first."""
CATALOGUE = Path(__file__).with_name("measures.json")
"""A line about each measure of this package, its module and the names of its options, to be read without importing torch."""
SCORES = ("importance_", "alignment_")
"""How the columns of measures of importance begin."""
_SOURCE = re.compile(r"Source: (.*?)(?:\n\s*\n|\Z)", re.S)
_SENTENCE = re.compile(r"\. (?=[A-Z])")


class MeasurementError(AttnfaithError):
    """A measurement that cannot start or go on. The message gives the reason and what to do."""


class Measure:
    """The base class of measures: subclass it, declare what it needs and returns, and `register` it.

    Fields with annotations are the options; pydantic checks them. The class docstring explains the measure; a paragraph
    "Source: …" names the paper.

    name: as people write it. needs: names of capabilities, those of `attnfaith.subjects.protocol.CAPABILITIES` or, for
    pairs, PAIR_CAPABILITIES there. cost: one of COSTS. columns: what it adds to a record; `Column.needs` lists what a column
    needs beyond the measure. reads: one of READS. most_tokens: the longest text that it takes, None without a bound.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    cost: ClassVar[str] = "reading"
    columns: ClassVar[Mapping[str, Column]]
    reads: ClassVar[Literal["texts", "pairs"]] = "texts"
    most_tokens: ClassVar[int | None] = None
    takes_seed: ClassVar[bool] = False  # `register` sets these two from the signature of __call__
    takes_scores: ClassVar[bool] = False

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return {column: one value for each instance} for the columns of `columns_for(subject)`.

        A column of tokens holds one array of length T an instance, T its attendable tokens. A measure that draws random
        numbers takes the keyword `seed`; one that tests the scores of others takes `scores`, {measure: one array [T] an
        instance}, and runs after them.
        """
        raise NotImplementedError

    def check(self, subject, dataset) -> None:
        """Raise ValueError where this measure, with its options, cannot measure the subject or an instance of the encoded
        data set.
        """

    def prepare(self, subject, splits: Callable, folder, *, seed: int) -> "Measure":
        """Return the measure that can run. A measure that has to be trained on the model trains itself here.

        splits: (name, most) → at most so many encoded texts of a split. folder: where it keeps what it learned.
        """
        return self

    @property
    def is_trained(self) -> bool:
        """Whether it can run without `prepare`."""
        return True

    def stated(self) -> dict[str, object]:
        """Return the options as a record keeps them."""
        return {field.name: getattr(self, field.name) for field in fields(self)} if is_dataclass(self) else {}

    @classmethod
    def columns_for(cls, subject) -> dict[str, Column]:
        """Return its columns for a subject: those whose own needs the subject meets."""
        return {name: column for name, column in cls.columns.items() if column.needs <= subject.capabilities}

    def in_columns(self, subject, rows: Iterable[Sequence]) -> dict[str, list]:
        """Return {column: one value for each instance} from rows: the values of an instance in the order of the columns."""
        return dict(zip(self.columns_for(subject), map(list, zip(*rows, strict=True)), strict=True))

    @classmethod
    def options(cls) -> dict[str, object]:
        """Return {option: its default}."""
        return {field.name: field.default for field in fields(cls)} if is_dataclass(cls) else {}

    @classmethod
    def role(cls) -> str:
        """Return "importance" for scores of tokens, else "intervention"."""
        return "importance" if any(name.startswith(SCORES) for name in cls.columns) else "intervention"

    @classmethod
    def signed(cls) -> bool:
        """Whether a negative score is evidence against the explained class."""
        return cls.role() == "importance" and any(column.signed for column in cls.columns.values())

    @classmethod
    def summary(cls) -> str:
        """Return the first paragraph of the docstring, in one line."""
        return " ".join(inspect.getdoc(cls).partition("\n\n")[0].split())

    @classmethod
    def source(cls) -> str:
        """Return the paper that the docstring names, "" where there is none."""
        match = _SOURCE.search(inspect.getdoc(cls))
        return _SENTENCE.split(" ".join(match[1].split()))[0].rstrip(".") if match else ""


Kind = TypeVar("Kind", bound=type[Measure])
_CLASSES: dict[str, dict[str, type[Measure]]] = {reads: {} for reads in READS}


@dataclass_transform(kw_only_default=True, frozen_default=True)
def register(cls: Kind) -> Kind:
    """Add a class of measures to the registry, under its name; returns it as a frozen dataclass that checks its options.

    Usable as a decorator. The measure may then be called with any model and the batch of a tokenizer.

    Raises ValueError for a class that does not declare itself wholly, and for a name that another class has.
    """
    from pydantic import ConfigDict
    from pydantic.dataclasses import dataclass

    for name, allowed in (("cost", COSTS), ("reads", READS)):
        if getattr(cls, name) not in allowed:
            raise ValueError(f"{cls.__name__}.{name}={getattr(cls, name)!r}; give one of {', '.join(allowed)}")
    missing = [name for name in ("name", "columns", "__doc__") if not getattr(cls, name, None)]
    if missing:
        raise ValueError(f"{cls.__name__} lacks {', '.join(missing)}: a measure declares its name, columns and docstring")
    other = _CLASSES[cls.reads].get(cls.name, cls)
    if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"a measure called {cls.name!r} is registered already: give another name")
    parameters = inspect.signature(cls.__call__).parameters
    cls.needs = frozenset(cls.needs)
    cls.takes_seed, cls.takes_scores = "seed" in parameters, "scores" in parameters
    cls.__call__ = _opening(cls.__call__)
    cls = dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))(cls)
    _CLASSES[cls.reads][cls.name] = cls
    return cls


def _opening(call: Callable) -> Callable:
    """`__call__` that takes any model and a plain batch, outside the modes of torch that a caller has set.

    Raises, before anything is computed, SubjectError for a model that lacks what the measure needs, and what `check` raises.
    """

    @functools.wraps(call)
    def measure(self, subject, batch, **keywords):
        from attnfaith.subjects import opened
        from attnfaith.subjects.base import plainly

        with plainly():
            subject, batch = opened(subject, batch, self.needs, self.name)
            self.check(subject, None)
            return call(self, subject, batch, **keywords)

    return measure


def names(reads: str = "texts") -> list[str]:
    """Return the names of all measures of texts, or of pairs, those of installed packages too.

    Raises AttnfaithError for anything else than "texts" and "pairs".
    """
    if reads not in READS:
        raise AttnfaithError(f"there are no measures of {excerpt(reads)}: there are those of 'texts' and of 'pairs'")
    _load_entry_points()
    return sorted({*catalogue()[reads], *_CLASSES[reads]})


def check_names(wanted: str | Iterable[str], reads: str = "texts") -> list[str]:
    """Return the names of measures as a list, from one name or several.

    Raises MeasurementError for a name that no measure has, with the nearest, and for a name that comes twice.
    """
    if not isinstance(wanted, Iterable):
        raise MeasurementError(f"measures={excerpt(wanted)}: give a list of names of measures")
    wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    for place, name in enumerate(wanted):
        listed = isinstance(name, str) and (name in catalogue()[reads] or name in _CLASSES[reads])
        if not listed and name not in names(reads):
            raise MeasurementError(f"no measure is called {excerpt(name)}{nearest(str(name), names(reads))}")
        if name in wanted[:place]:
            raise MeasurementError(f"'{name}' is named twice")
    return wanted


def find(name: str, reads: str = "texts") -> type[Measure]:
    """Return the class of a measure. Raises MeasurementError for a name that no measure has, with the nearest."""
    if name not in _CLASSES[reads]:
        check_names([name], reads)
        if name in catalogue()[reads]:
            import_module(catalogue()[reads][name]["module"])
    return _CLASSES[reads][name]


def classes(reads: str = "texts") -> list[type[Measure]]:
    """Return every measure: those of importance first, each kind from cheap to dear and then by name."""
    return sorted((find(name, reads) for name in names(reads)), key=lambda cls: (*by_cost(cls), cls.name))


def by_cost(cls: type[Measure]) -> tuple[bool, int]:
    """Return the sort key of a list of measures: importance before interventions, cheap measures before dear ones."""
    return cls.role() != "importance", [*COSTS].index(cls.cost)


def check_options(wanted: Sequence[str], options: Mapping[str, Mapping], reads: str = "texts") -> None:
    """Raise MeasurementError for options, {name: {option: value}}, of a measure that is not among the wanted ones, and for a
    name that is no option of its measure. Measures of this package are not imported for it; values are not looked at.
    """
    for part in (options, *(options.values() if isinstance(options, Mapping) else ())):
        if not isinstance(part, Mapping):
            raise MeasurementError(f"options: {excerpt(part)} is no mapping; give {{measure: {{option: value}}}}")
    for name, values in options.items():
        if name not in wanted:
            raise MeasurementError(f"options for {excerpt(name)}, which is not measured; measured: {sorted(wanted)}")
        listed = catalogue()[reads].get(name)
        allowed = listed["options"] if listed else find(name, reads).options()
        for option in set(values) - set(allowed):
            raise MeasurementError(
                f"options of '{name}': {name} has no option {option!r}{nearest(option, allowed)}; "
                f"options: {', '.join(allowed) or 'none'}"
            )


def mistake(error: Exception, options: Mapping) -> str:
    """Return the option that a measure refused and what is allowed, in one line. error: what its class raised."""
    if not hasattr(error, "errors"):
        return str(error)
    mistakes = error.errors(include_url=False)
    place, messages = mistakes[0]["loc"], [found["msg"].removeprefix("Value error, ") for found in mistakes]
    reasons = ", or ".join(dict.fromkeys(messages))
    return f"{place[0]}={excerpt(options.get(place[0]))}: {reasons}" if place else reasons


def build(wanted: Iterable[str], options: Mapping[str, Mapping] | None = None, reads: str = "texts") -> list[Measure]:
    """Return the measures of these names with their options, {name: {option: value}}, in this order.

    Raises MeasurementError as `check_names` and `check_options` do, for a value that a measure refuses, and where a test of
    explanations, which follows the predicted class, would judge a measure that explains anything else.
    """
    wanted, options, measures = check_names(wanted, reads), {} if options is None else options, []
    if options != {}:
        check_options(wanted, options, reads)
    for name in wanted:
        try:
            measures.append(find(name, reads)(**options.get(name, {})))
        except ValueError as error:
            raise MeasurementError(f"options of '{name}': {mistake(error, options.get(name, {}))}") from error
    tests = sorted(measure.name for measure in measures if measure.takes_scores)
    for measure in measures:
        if tests and (target := measure.stated().get("target", "predicted")) != "predicted":
            raise MeasurementError(
                f"'{measure.name}' explains target={target!r}, and {tests} would judge it by the predicted class, whose "
                "evidence may be evidence against what it explains: leave out the target, or measure it without them"
            )
    return measures


@functools.cache
def catalogue() -> dict[str, dict[str, dict]]:
    """Return what CATALOGUE holds: {reads: {measure: {"line": its summary, "module": where, "options": their names}}}, and
    the lines of the parts of models, {kind: {part: {"line"}}}.
    """
    return json.loads(CATALOGUE.read_text(encoding="utf-8"))


@functools.cache
def _load_entry_points() -> None:
    """Register the measures of installed packages, where their modules did not do so themselves."""
    for entry in entry_points(group=GROUP):
        try:
            cls = entry.load()
        except Exception as error:
            raise MeasurementError(
                f"the entry point {entry.name!r} of {GROUP} cannot be loaded ({excerpt(error, 200)}): mend or remove its "
                "package"
            ) from error
        if _CLASSES[getattr(cls, "reads", "texts")].get(getattr(cls, "name", None)) is not cls:
            register(cls)
