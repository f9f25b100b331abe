"""What the build adds to the pages in docs/: generated pages, and the files of the repository that pages link to.

A link that leaves docs/ is followed: a file (a table, a figure, a recipe) is copied into the site, a page of Markdown
becomes a page of it. So the site is whole, wherever it is opened.
"""

import re
import sys
import tempfile
from pathlib import Path, PurePosixPath

from mkdocs.structure.files import File


sys.path.insert(0, str(Path(__file__).parent))
import generated  # noqa: E402
import notebooks  # noqa: E402


ROOT = Path(__file__).parents[2]
DOCS = PurePosixPath("docs")
ELSEWHERE = PurePosixPath("repository")  # below the site: files from outside of docs/
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
NOTEBOOK = re.compile(r"(\]\((?:\.\./)*notebooks/\w+)\.ipynb\)")
FENCED = re.compile(r"^```.*?^```", re.M | re.S)


def resolved(page: PurePosixPath, link: str) -> PurePosixPath | None:
    """The file in the repository that a page's link leads to; None for an anchor, an address and what leads nowhere."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z]+:", path):
        return None
    target = (ROOT / page.parent / path).resolve()
    return PurePosixPath(target.relative_to(ROOT)) if target.is_relative_to(ROOT) and target.exists() else None


def source_of(uri: str) -> PurePosixPath:
    """The file in the repository behind a page of the site."""
    path = PurePosixPath(uri)
    return path.relative_to(ELSEWHERE) if path.is_relative_to(ELSEWHERE) else DOCS / path


def uri_of(target: PurePosixPath) -> PurePosixPath:
    """The place in the site of a file in the repository. README.md is for the repository; the site has a first page."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS)
    return PurePosixPath("README.md") if target == PurePosixPath("README.md") else ELSEWHERE / target


def crossing(page: PurePosixPath, text: str) -> dict[str, PurePosixPath]:
    """The links of a page that leave docs/, or come from outside, and where they lead."""
    links = {link: resolved(page, link) for _, link, _ in LINK.findall(FENCED.sub("", text))}
    return {
        link: target
        for link, target in links.items()
        if target and not (page.is_relative_to(DOCS) and target.is_relative_to(DOCS))
    }


def on_config(config):
    """The reference of the package's parts, below the pages that mkdocs.yml names. No script is fetched from elsewhere."""
    config.extra["polyfills"] = []  # the offline plugin's own, which a browser would ask of a server
    (reference,) = (one["Reference"] for one in config.nav if isinstance(one, dict) and "Reference" in one)
    reference.append({"Python": sorted(generated.interface())})
    return config


def on_files(files, config):
    """Add generated pages and notebooks, then what pages link to outside of docs/, and what those link to."""
    for uri, text in generated.pages().items():
        files.append(File.generated(config, uri, content=text))
    for path in notebooks.notebooks():
        with tempfile.TemporaryDirectory() as folder:
            text, pictures = notebooks.page(notebooks.carried_out(path, Path(folder)), f"{path.stem}_files")
        for uri, content in {f"{path.stem}.md": text, **pictures}.items():
            files.append(File.generated(config, f"notebooks/{uri}", content=content))
    pages = list(files.documentation_pages())
    while pages:
        page = pages.pop()
        for target in crossing(source_of(page.src_uri), page.content_string).values():
            uri = str(uri_of(target))
            if (ROOT / target).is_file() and files.get_file_from_path(uri) is None:
                added = File.generated(config, uri, abs_src_path=str(ROOT / target))
                files.append(added)
                pages += [added] if added.is_documentation_page() else []
    return files


def on_page_markdown(markdown, page, config, files):
    """Links that cross the border of docs/ lead to where the site has what they lead to; one to a folder is an error."""
    markdown = NOTEBOOK.sub(r"\1.md)", markdown)  # a notebook is a page here, with its outputs
    targets = crossing(source_of(page.file.src_uri), markdown)
    here = PurePosixPath(page.file.src_uri).parent

    def rewritten(match: re.Match) -> str:
        if match[2] not in targets:
            return match[0]
        path = PurePosixPath(*[".."] * len(here.parts)) / uri_of(targets[match[2]])
        anchor = match[2].partition("#")[2]
        return f"{match[1]}{path}{'#' + anchor if anchor else ''}{match[3]}"

    pieces = re.split(f"({FENCED.pattern})", markdown, flags=FENCED.flags)
    return "".join(piece if piece.startswith("```") else LINK.sub(rewritten, piece) for piece in pieces)
