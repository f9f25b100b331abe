"""The data sets the studies read: where each is published, which columns and labels are used, and how it is cut.

One `DatasetEntry` per data set, in the dict `DATASETS` at the foot of this file; to add a data set, add its entry.
Nothing here touches a file or the network: `attnfaith.data.loading` does.

`revision` pins the published repository. "main" is a moving branch: a release replaces it with the commit it was
measured on, and `LoadedDataset.revision` says what was read in any run.

The filters and vocabulary thresholds are those of Jain & Wallace (2019), "Attention is not Explanation", whose rule
for the number n of words of a text (begin and end markers not counted) is strict on both sides:
min_length < n < max_length. Where they name no maximum they take the longest text *of that split* as the maximum, and
where they name no minimum the shortest, so those texts are always lost: `drop_longest` and `drop_shortest`.
Their question answering and inference sets are not filtered.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from attnfaith.errors import AttnfaithError


class DatasetError(AttnfaithError):
    """A data set, file, column, label or text that cannot be used as asked; the message says what to do."""


@dataclass(frozen=True)
class DatasetEntry:
    """How one data set is found, read, filtered and cut into train, validation and test.

    Attributes:
        name: the name in recipes and records.
        hub_id: repository on the Hub, or None for the user's own files and for generated data.
        folder: its place under the data root: the Hub id, or the folder of the user's own files; None if generated.
        hub_config: configuration of the Hub repository, or None for its default.
        hub_data_dir: folder inside the repository (and inside `folder`) that holds the data set, or None for all of it.
        revision: branch, tag or commit of the Hub repository.
        original_format: name in `attnfaith.data.original_formats.FORMATS` of the form of the first publication, or "".
        original_files: split -> its files in that form, as a pattern under the data root. They are read where there
            are any, else the folder, else the Hub.
        original_columns: names of the columns of files without a header, the class first.
        original_labels: the words for our labels in files whose labels are words, in the order of our labels.
        columns: our column ("text", "text_pair", "label", "impermissible") -> the accepted published names, in order of
            preference; a tuple of names stands for their texts joined by a blank.
        published_labels: number of labels as published; one outside first_label..first_label+published_labels-1 is an
            error.
        first_label: the published number of the first label; ours are counted from 0.
        no_label: what is published in place of a label where the annotators did not agree; such rows are left out and
            counted. None: every row has a label.
        answers: the published labels are words. They are numbered in alphabetical order over the training split as
            published; rows with another answer are left out and counted. Then label_names is empty here and
            `LoadedDataset.label_names` holds the answers.
        candidates: pattern of the words of a text that may be its answer (needs `answers`), or "" where every answer may
            be. The labels are then the candidates of the training texts, and a split has a column candidates.
        label_subset: published label -> ours; rows with other labels are left out and counted. None keeps all.
        label_names: name of each of our labels, so len(label_names) is the number of classes C.
        min_length, max_length: keep min_length < n < max_length, n in words; None sets no bound.
        drop_longest, drop_shortest: drop the longest / shortest texts of each split (all that tie).
        min_df: number of training texts a word must occur in to enter the vocabulary.
        preprocessing: name in `attnfaith.data.tokenization.PREPROCESSING`.
        pooled: pool all published splits and cut them anew.
        test_fraction: of the pooled rows, the share that becomes test; not pooled, the random share of the published
            test split that is kept. None keeps the published test split whole.
        validation_fraction: share of the training rows set apart as validation where the source has no validation
            split (always, if pooled). Of pairs, the share of their first texts: those of one story or premise stay together.
        distinct: drop repeated (text, label) rows, and keep rows of one text in one split. Needs `pooled`.
        split_seed: seed of every random cut above, not that of an experiment: all experiments share one test set.
        rationale: accepted published names of the gold evidence column, or ().
        line_breaks: the texts spell a line break as backslash and n, and a quotation mark as backslash and mark; both
            are put right.
        built_in: generated by this package rather than read.
        citation: who published it.
        licence: the terms that its publisher states, or "" where none are known to be stated.
        notes: what differs from the papers that used it.
    """

    name: str
    citation: str
    label_names: tuple[str, ...] = ()
    hub_id: str | None = None
    folder: str | None = None
    hub_config: str | None = None
    hub_data_dir: str | None = None
    revision: str = "main"
    original_format: str = ""
    original_files: Mapping[str, str] = field(default_factory=dict)
    original_columns: tuple[str, ...] = ()
    original_labels: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str | tuple[str, ...], ...]] = field(
        default_factory=lambda: {"text": ("text",), "label": ("label",)}
    )
    published_labels: int = 2
    first_label: int = 0
    no_label: int | None = None
    answers: bool = False
    candidates: str = ""
    label_subset: Mapping[int, int] | None = None
    min_length: int | None = None
    max_length: int | None = None
    drop_longest: bool = False
    drop_shortest: bool = False
    min_df: int = 1
    preprocessing: str = "default"
    pooled: bool = False
    test_fraction: float | None = None
    validation_fraction: float | None = None
    distinct: bool = False
    split_seed: int = 1378
    rationale: tuple[str, ...] = ()
    line_breaks: bool = False
    built_in: bool = False
    licence: str = ""
    notes: str = ""

    @property
    def pair(self) -> bool:
        """Whether an instance is a text and a question about it."""
        return "text_pair" in self.columns


def get_entry(name: str) -> DatasetEntry:
    """The entry of a data set. DatasetError, with the known names and the nearest, for an unknown one."""
    if name in DATASETS:
        return DATASETS[name]
    near = difflib.get_close_matches(str(name).lower(), DATASETS, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise DatasetError(f"Unknown data set {name!r}.{hint} Known: {', '.join(sorted(DATASETS))}.")


def facts(name: str) -> dict:
    """What a card says of a data set, as plain values; DatasetError as `get_entry`."""
    entry = get_entry(name)
    names = ("name", "hub_id", "citation", "licence", "built_in", "pair", "notes")
    return {field: getattr(entry, field) for field in names}


_GENERATED = "generated by this package: Apache-2.0, as the package"
_PAIR_COLUMNS = {"text": ("text",), "text_pair": ("text_pair",), "label": ("label",)}
_LOCATIONS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
_BABI_NOTES = (
    "Generated here from the description of the task, with names of its own; not the published stories. One story and "
    "one question a row, and the rationale marks the words of the supporting statements."
)


def _babi(task: int, facts: str) -> DatasetEntry:
    return DatasetEntry(
        name=f"babi_{task}",
        citation="after Weston et al. (2015), Towards AI-Complete Question Answering",
        label_names=_LOCATIONS,
        columns=_PAIR_COLUMNS,
        published_labels=len(_LOCATIONS),
        preprocessing="whitespace",
        rationale=("rationale",),
        built_in=True,
        licence=_GENERATED,
        notes=f"Task {task}, {facts}. {_BABI_NOTES} The published ones are babi_qa_{task}.",
    )


_BABI_QA = {
    "": ("en-10k", "10000 questions to train on, as in the papers"),
    "_1k": ("en", "1000 questions to train on"),
    "_valid": ("en-valid-10k", "the 10000 training questions as published in two parts, 9000 and 1000 for validation"),
}
"""The published variants of a task: end of our name -> their name and what it holds."""


def _babi_qa(task: int, variant: str) -> DatasetEntry:
    published, held = _BABI_QA[variant]
    files = {split: f"facebook/babi_qa/{published}/qa{task}_*{split}.txt" for split in ("train", "test")}
    if variant == "_valid":
        files["validation"] = f"facebook/babi_qa/{published}/qa{task}_*valid.txt"
    return DatasetEntry(
        name=f"babi_qa_{task}{variant}",
        hub_id="facebook/babi_qa",
        folder="facebook/babi_qa",
        hub_data_dir=f"{published}-qa{task}",
        revision="refs/convert/parquet",
        citation="Weston et al. (2015), Towards AI-Complete Question Answering: A Set of Prerequisite Toy Tasks",
        original_format="babi",
        original_files=files,
        columns=_PAIR_COLUMNS,
        answers=True,
        preprocessing="whitespace",
        validation_fraction=0.15,
        rationale=("rationale",),
        licence="CC BY 3.0",
        notes=f"Task {task} of version 1.2, {held}; 1000 to test. A story with several questions is a row for each, with "
        f"the statements up to it; the rationale marks the supporting statements. Read from the original text, "
        f"facebook/babi_qa/{published}/qa{task}_*.txt in the data root, or the copy on the Hub. babi_{task} generates "
        "stories of the same kind. The papers answer with any word of the vocabulary, here with an answer of training.",
    )


_NEWS_COLUMNS = {
    "text": ("text", "passage", "context", "story"),
    "text_pair": ("text_pair", "question", "query"),
    "label": ("answer", "label"),
}


def _news(name: str, folder: str, paper: str) -> DatasetEntry:
    return DatasetEntry(
        name=name,
        folder=folder,
        citation="Hermann et al. (2015), Teaching Machines to Read and Comprehend",
        original_format="news_questions",
        original_files={
            split: f"{folder}/questions/{published}/*.question"
            for split, published in (("train", "training"), ("validation", "validation"), ("test", "test"))
        },
        columns=_NEWS_COLUMNS,
        answers=True,
        candidates=r"@entity\d+",
        min_df=8,
        preprocessing="whitespace",
        notes=f"Questions on {paper} articles; names are replaced by @entity numbers, and the answer is one of those in "
        "the passage. The papers take the training texts' entities into the vocabulary whatever their frequency. Unpack "
        f"the authors' {folder}.tgz so that {folder}/questions/training lies in the data root, or put train, validation "
        f"and test (parquet or jsonl with columns passage, question, answer) into {folder}.",
    )


_REVIEW_NOTES = (
    "Serrano & Smith hold out a tenth of training as validation, count a word known if it occurs five times in training "
    "and validation (here: in five training texts), and leave out training texts with very many or very long sentences "
    "(not done here)."
)
_STARS = ("1 star", "2 stars", "3 stars", "4 stars", "5 stars")


def _reviews(name: str, original: str, columns: tuple[str, ...], *, notes: str, **fields) -> DatasetEntry:
    """A set of Zhang, Zhao & LeCun as Serrano & Smith use it; `columns` names its class and its texts."""
    label, *texts = columns
    return DatasetEntry(
        name=name,
        folder=fields.get("hub_id", original),
        citation="Zhang, Zhao & LeCun (2015), Character-level Convolutional Networks for Text Classification",
        original_format="csv",
        original_files={split: f"{original}/{split}.csv" for split in ("train", "test")},
        original_columns=columns,
        columns={"text": (tuple(texts),), "label": (label,)},
        published_labels=len(fields["label_names"]),
        min_df=5,
        preprocessing="words",
        validation_fraction=0.1,
        line_breaks=True,
        notes=f"{notes} Read from {original}/train.csv and test.csv in the data root, without a header, as the authors "
        f"published them{', or from the Hub' if 'hub_id' in fields else ''}. {_REVIEW_NOTES}",
        **fields,
    )


def _deceptive(name: str, published: str, label_names: tuple[str, str], notes: str) -> DatasetEntry:
    return DatasetEntry(
        name=f"deceptive_{name}",
        folder=f"deceptive/{published}",
        citation="Pruthi et al. (2020), Learning to Deceive with Attention-Based Explanations",
        label_names=label_names,
        columns={"text": ("text",), "label": ("label",), "impermissible": ("impermissible",)},
        preprocessing="whitespace",
        notes=f"{notes} Put train, validation and test (parquet or jsonl with columns text, label and impermissible, one "
        f"0 or 1 per word between blanks) into deceptive/{published} of the data root, made from the authors' files "
        f"(danishpruthi/deceptive-attention).",
    )


_ENTRIES = (
    DatasetEntry(
        name="sst",
        hub_id="SetFit/sst2",
        folder="SetFit/sst2",
        citation="Socher et al. (2013), Recursive Deep Models for Semantic Compositionality over a Sentiment Treebank",
        label_names=("negative", "positive"),
        min_length=5,
        drop_longest=True,
        min_df=1,
        preprocessing="sst",
        notes="Sentences of the treebank, neutral ones left out. Reaches Jain & Wallace's 6355 / 821 / 1725 sentences "
        "and, counted on the training sentences before the length filter, their vocabulary of 13826 ids.",
    ),
    DatasetEntry(
        name="imdb",
        hub_id="stanfordnlp/imdb",
        folder="stanfordnlp/imdb",
        citation="Maas et al. (2011), Learning Word Vectors for Sentiment Analysis",
        label_names=("negative", "positive"),
        min_length=6,
        max_length=400,
        min_df=10,
        preprocessing="imdb",
        validation_fraction=0.2,
        test_fraction=0.2,
        notes="The papers start from reviews already turned into word indices (punctuation removed, apostrophes kept) "
        "and print 17200 / 4297 / 4356 reviews after the filter. The split rule is theirs, the random draw is not.",
    ),
    DatasetEntry(
        name="adr",
        folder="adr",
        citation="Sarker & Gonzalez (2015), Portable Automatic Text Classification for Adverse Drug Reaction Detection",
        licence="the tweets may not be passed on",
        label_names=("no reaction", "adverse reaction"),
        min_length=5,
        max_length=100,
        min_df=2,
        validation_fraction=0.15,
        notes="Tweets may not be passed on: put train, test and, if you have it, validation (csv, jsonl or parquet "
        "with columns text, label) into the folder adr of the data root. The papers hold out 15 % of "
        "training as validation.",
    ),
    DatasetEntry(
        name="ade",
        hub_id="ade-benchmark-corpus/ade_corpus_v2",
        folder="ade-benchmark-corpus/ade_corpus_v2",
        hub_config="Ade_corpus_v2_classification",
        citation="Gurulingappa et al. (2012), Development of a Benchmark Corpus to Support the Automatic Extraction "
        "of Drug-Related Adverse Effects from Medical Case Reports",
        label_names=("not related", "adverse effect"),
        min_length=5,
        max_length=100,
        min_df=2,
        pooled=True,
        test_fraction=0.2,
        validation_fraction=0.15,
        distinct=True,
        notes="A stand-in for the tweets of `adr`, with its filters; not used by the papers. A positive sentence is "
        "published once per drug and effect: repeats are dropped, and no sentence lies in two splits.",
    ),
    DatasetEntry(
        name="20news_sports",
        hub_id="SetFit/20_newsgroups",
        folder="SetFit/20_newsgroups",
        citation="Lang (1995), NewsWeeder: Learning to Filter Netnews",
        label_names=("baseball", "hockey"),
        published_labels=20,
        label_subset={9: 0, 10: 1},
        min_length=6,
        max_length=500,
        min_df=2,
        pooled=True,
        test_fraction=0.2,
        validation_fraction=0.2,
        notes="Train and test pooled and cut anew as the papers do (1426 train with validation, 334 test there); "
        "headers, footers and quotes are stripped in the published rows, which leaves some texts empty.",
    ),
    DatasetEntry(
        name="ag_news",
        hub_id="fancyzhx/ag_news",
        folder="fancyzhx/ag_news",
        citation="Zhang, Zhao & LeCun (2015), Character-level Convolutional Networks for Text Classification",
        label_names=("world", "business"),
        published_labels=4,
        label_subset={0: 0, 2: 1},
        drop_longest=True,
        drop_shortest=True,
        min_df=5,
        validation_fraction=0.15,
        licence="for non-commercial research",
        notes="World against business. 30000 + 30000 training and 1900 + 1900 test texts in the papers, counted "
        "before the filter; the share they hold out for validation is not printed.",
    ),
    DatasetEntry(
        name="mimic_diabetes",
        folder="mimic/diabetes",
        citation="Johnson et al. (2016), MIMIC-III, a freely accessible critical care database",
        licence="under a data use agreement that each user signs",
        label_names=("no diabetes", "diabetes"),
        min_length=6,
        max_length=4000,
        min_df=5,
        notes="Needs a signed data use agreement: put train, validation and test (csv, jsonl or parquet with columns "
        "text, label) into the folder mimic/diabetes of the data root.",
    ),
    DatasetEntry(
        name="mimic_anemia",
        folder="mimic/anemia",
        citation="Johnson et al. (2016), MIMIC-III, a freely accessible critical care database",
        licence="under a data use agreement that each user signs",
        label_names=("acute", "chronic"),
        max_length=4000,
        drop_shortest=True,
        min_df=5,
        notes="Needs a signed data use agreement: put train, validation and test (csv, jsonl or parquet with columns "
        "text, label) into the folder mimic/anemia of the data root.",
    ),
    DatasetEntry(
        name="movie_reviews",
        hub_id="eraser-benchmark/movie_rationales",
        folder="eraser-benchmark/movie_rationales",
        citation="Zaidan & Eisner (2008); DeYoung et al. (2020), ERASER",
        label_names=("negative", "positive"),
        revision="refs/convert/parquet",
        original_format="eraser",
        original_files={"train": "movies/train.jsonl", "validation": "movies/val.jsonl", "test": "movies/test.jsonl"},
        original_labels=("NEG", "POS"),
        columns={"text": ("text", "review"), "label": ("label",)},
        min_df=2,
        preprocessing="whitespace",
        rationale=("rationale_spans", "evidences", "rationale"),
        notes="Reviews come split into words. ERASER's own files are read from the folder movies of the data root. Gold "
        "evidence is spans [start, end) over those words, marks, or the marked passages, each then found by its first "
        "occurrence. Test rationales are comprehensive (about 30 % of "
        "words), train and validation ones are not.",
    ),
    _babi(1, "one supporting fact"),
    _babi(2, "two supporting facts"),
    _babi(3, "three supporting facts"),
    *(_babi_qa(task, variant) for task in (1, 2, 3) for variant in _BABI_QA),
    DatasetEntry(
        name="snli",
        hub_id="stanfordnlp/snli",
        folder="stanfordnlp/snli",
        citation="Bowman et al. (2015), A Large Annotated Corpus for Learning Natural Language Inference",
        label_names=("entailment", "neutral", "contradiction"),
        columns={"text": ("premise",), "text_pair": ("hypothesis",), "label": ("label",)},
        published_labels=3,
        no_label=-1,
        min_df=3,
        validation_fraction=0.1,
        licence="CC BY-SA 4.0",
        notes="The premise is attended, the hypothesis asks. 549367 training and 9824 test pairs have a label; the papers "
        "keep them all, split words with spaCy and number the classes in alphabetical order, so compare tables by the name "
        "of the class. A tenth of training becomes validation only where the validation split is not there.",
    ),
    _news("cnn_qa", "cnn", "CNN"),
    _news("daily_mail_qa", "dailymail", "Daily Mail"),
    _reviews(
        "yelp",
        "yelp_review_full_csv",
        ("label", "text"),
        hub_id="Yelp/yelp_review_full",
        label_names=_STARS,
        notes="650000 training and 50000 test reviews, five classes.",
    ),
    _reviews(
        "amazon",
        "amazon_review_full_csv",
        ("label", "title", "content"),
        label_names=_STARS,
        notes="3000000 training and 650000 test reviews, five classes; title and review are joined. The two-class copy "
        "on the Hub (amazon_polarity) is another selection of the reviews.",
    ),
    _reviews(
        "yahoo_answers",
        "yahoo_answers_csv",
        ("topic", "question_title", "question_content", "best_answer"),
        hub_id="community-datasets/yahoo_answers_topics",
        label_names=(
            "Society & Culture",
            "Science & Mathematics",
            "Health",
            "Education & Reference",
            "Computers & Internet",
            "Sports",
            "Business & Finance",
            "Entertainment & Music",
            "Family & Relationships",
            "Politics & Government",
        ),
        notes="1400000 training and 60000 test questions, ten topics; title, question and best answer are joined. Serrano "
        "& Smith draw 1400000 and 50000 of their own from the same source, which needs a data use agreement.",
    ),
    DatasetEntry(
        name="imdb_10",
        folder="imdb_10",
        citation="Diao et al. (2014), Jointly Modeling Aspects, Ratings and Sentiments for Movie Recommendation",
        label_names=tuple(f"rating {rating}" for rating in range(1, 11)),
        columns={"text": ("review", "text"), "label": ("rating",)},
        published_labels=10,
        first_label=1,
        min_df=5,
        preprocessing="words",
        pooled=True,
        test_fraction=0.1,
        validation_fraction=1 / 9,
        notes="Ten classes. Put the authors' data.json, or any json, jsonl or parquet file with columns review and rating "
        "(1 to 10), into the folder imdb_10 of the data root. All is pooled and cut 80 / 10 / 10; the draw is not that of "
        f"Serrano & Smith (122121 with validation, 13548). {_REVIEW_NOTES}",
    ),
    _deceptive(
        "occupation",
        "occupation-classification",
        ("physician", "surgeon"),
        "Biographies; impermissible words tell the gender. The authors know the 20000 commonest words only.",
    ),
    _deceptive("pronoun", "pronoun", ("male", "female"), "Sentences whose pronouns, impermissible words, tell the gender."),
    _deceptive(
        "sst_wiki",
        "sst-wiki",
        ("negative", "positive"),
        "A sentence of the treebank, all of it impermissible, then one of Wikipedia; the label is the first one's.",
    ),
    DatasetEntry(
        name="planted_evidence",
        citation="generated by attnfaith",
        label_names=("negative", "positive"),
        preprocessing="whitespace",
        rationale=("rationale",),
        built_in=True,
        licence=_GENERATED,
        notes="Texts whose label is decided by known planted words and nothing else; see "
        "`attnfaith.data.planted_evidence` for the knobs.",
    ),
)

DATASETS: dict[str, DatasetEntry] = {entry.name: entry for entry in _ENTRIES}
