"""Every study of the package, one after another: what `attnfaith study all` runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnfaith import provenance, recipes
from attnfaith.recipes import library
from attnfaith.reporting.analysis import StudyError
from attnfaith.study import status
from attnfaith.study.arguments import ALL, study_parser
from attnfaith.study.command import carry_out, options, prepare
from attnfaith.study.plan import Cell, complete, read_study


STUDIES = (
    "jain_wallace_2019/table2.yaml",
    "jain_wallace_2019/sst_study.yaml",
    "jain_wallace_2019/20news_study.yaml",
    "jain_wallace_2019/imdb_study.yaml",
    "meister_2021/study.yaml",
    "meister_2021/paper_rates.yaml",
    "wiegreffe_pinter_2019/sst.yaml",
    "wiegreffe_pinter_2019/20news_sports.yaml",
    "serrano_smith_2019/six_models.yaml",
    "serrano_smith_2019/sst.yaml",
    "serrano_smith_2019/20news_sports.yaml",
    "bastings_filippova_2020/study.yaml",
    "planted_evidence/encoders.yaml",
    "planted_evidence/interventions.yaml",
    "any_classifier/measures.yaml",
    "any_classifier/identifiability.yaml",
    "pruthi_2020/study.yaml",
    "mohankumar_2020/study.yaml",
    "tutek_snajder_2020/study.yaml",
    "interventions/study.yaml",
    "rationales/study.yaml",
    "rationales/authors.yaml",
    "diffmask/study.yaml",
    "diffmask/zeros.yaml",
    "alignment/study.yaml",
    "pruthi_2020/sequences_study.yaml",
    "verdict/calibration.yaml",
)
"""Files below the folder of recipes: the studies whose tables the documents show, in the order in which they are run."""


@dataclass(frozen=True)
class Planned:
    """A study that was read and checked."""

    name: str
    study: Mapping
    cells: Sequence[Cell]
    wanted: Mapping[str, recipes.Recipe]

    @property
    def complete(self) -> list[Cell]:
        return [cell for cell in self.cells if complete(self.wanted[cell.name])]

    def seconds(self, cells: Sequence[Cell]) -> float:
        """What cells took, summed; those of which nobody knows not counted."""
        took = (status.state_of(Path(self.study["output_dir"]), cell).seconds for cell in cells)
        return sum(seconds for seconds in took if not math.isnan(seconds))


def read_all(names: Sequence[str] = STUDIES) -> list[Planned]:
    """Studies by their files. Raises RecipeError or StudyError for one that is missing or could not run."""
    planned = []
    for name in names:
        study = read_study(library.folder() / name)
        with recipes.named(name):
            planned.append(Planned(name, study, *prepare(study)))
    return planned


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every study, show how far they are, or make their tables again."""
    known, how = options(study_parser(), arguments)
    if known is None:
        return
    if known.only is not None:
        raise StudyError(f"--only {known.only} picks cells of one study: name that study in place of `{ALL}`")
    if known.tables and known.remeasure:
        raise StudyError("--tables only reads records: leave it out to measure them anew with --remeasure")
    planned = read_all()
    if not known.status:
        failures = run(planned, run=not known.tables, mix_versions=known.mix_versions, **how)
    show(planned)
    if not known.status and failures:
        raise StudyError("; ".join(failures))


def run(planned: Sequence[Planned], *, run: bool, mix_versions: bool, **how) -> list[str]:
    """Run studies one after another and make their tables; which failed, and why. No failure keeps another from running.

    run: whether cells are, or only tables made. how: the options of `execute.run_cells`. Raises StudyError where the code
    has changes that no commit holds while cells are missing: tables could not name what made them.
    """
    if run and provenance.checkout()[1] and not all(complete(one) for each in planned for one in each.wanted.values()):
        raise StudyError("the code has uncommitted changes, so no commit could be named for the tables: commit them first")
    failures = []
    for number, one in enumerate(planned, start=1):
        print(f"{one.name} ({number} of {len(planned)})", flush=True)
        try:
            _, missing = carry_out(one.study, run=run, mix_versions=mix_versions, **how)
        except StudyError as error:
            missing = str(error)
        if missing:
            failures.append(f"{one.name}: {missing}")
    return failures


def show(planned: Sequence[Planned]) -> None:
    """Print a line for each study, and their sum: cells that are complete, all cells, and the hours of the complete ones."""
    width = max(len(one.name) for one in planned)
    lines = [(one.name, len(done := one.complete), len(one.cells), one.seconds(done)) for one in planned]
    lines.append((ALL, *(sum(line[place] for line in lines) for place in (1, 2, 3))))
    print(f"{'study':{width}}  {'done':>5}  {'cells':>5}  {'hours':>6}")
    for name, done, cells, seconds in lines:
        print(f"{name:{width}}  {done:5}  {cells:5}  {seconds / 3600:6.2f}")
