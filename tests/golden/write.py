"""Write the goldens: `python -m tests.golden.write [NAME …]` from the root of the checkout.

It prints what moved, and by how many times what is allowed. Only --accept writes a file whose values moved.
"""

import argparse
import sys

from tests.golden import reports, subjects, values


def record(subject: str) -> dict:
    """The columns of every measure and experiment that a subject can be measured by, and the names of the others."""
    absent, stored, parts = [], {}, {}
    for group, names in subjects.groups(subject).items():
        lacking = [name for name in names if values.lacks(subjects.measured, subject, [name], group)]
        absent += [name for name in lacking if name not in (*subjects.PLAN["left_out"], *absent)]
        if able := [name for name in names if name not in lacking]:
            columns = subjects.columns(subject, group, able)
            new = {column: numbers for column, numbers in columns.items() if str(numbers) != stored.get(column)}
            parts[group] = {"names": able, "columns": new}
            stored = {column: str(numbers) for column, numbers in columns.items()} | stored
    return {"absent": absent, "groups": parts}


def write_checkpoints() -> None:
    """Every checkpoint that is not there; one that is never changes: it stands for those that people have."""
    from attnfaith.data.tokenization import build_tokenizer

    for name in (name for name in subjects.FAMILIES if not (subjects.CHECKPOINTS / name).exists()):
        folder = subjects.CHECKPOINTS / name
        subjects.model(name).float().save_pretrained(folder)
        subjects.model.cache_clear()  # it is float32 now
        for code in folder.glob("*.py"):
            code.unlink()
        if name in subjects.PLAN["with_tokenizer"]:
            how = {"preprocessing": "whitespace", "pair": name == "pair"}
            how |= {"hierarchy": "sentence"} if name == "hierarchical" else {}
            build_tokenizer([" ".join(subjects.WORDS)], **how).save_pretrained(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help="files, without .json; all where none is given")
    parser.add_argument("--accept", action="store_true", help="write values that moved")
    arguments, status = parser.parse_args(), 0
    write_checkpoints()
    makers = {f"record_{subject}": lambda subject=subject: record(subject) for subject in subjects.SUBJECTS}
    makers |= {
        "report_tables": reports.tables,
        "report_frames": reports.frames,
        "card": reports.card,
        "diffmask": reports.diffmask,
    }
    for name, make in (makers | {"predictions": reports.predictions}).items():
        if arguments.name and name not in arguments.name:
            continue
        path, today = values.VALUES / f"{name}.json", make()
        if path.exists():
            changes = values.changes(values.read(name), today)
            new = values.leaves(today).keys() - values.leaves(values.read(name)).keys()
            print(f"{name}:", *(f"\n  {change}: {times:.3g} times" for change, times in changes.items()), *new)
            if not (changes or new) or not arguments.accept:
                status |= bool(changes or new)
                continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(values.text_of({"provenance": values.provenance(), **today}) + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
