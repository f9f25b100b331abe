"""What a card cites: the papers that measurements, models and data sets come from, as BibTeX, in one table."""

from collections.abc import Iterable, Mapping

from attnfaith.reporting.findings import Checkpoint


def _entry(kind: str, key: str, **fields: str) -> str:
    lines = "".join(f"    {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@{kind}{{{key},\n{lines}}}\n"


def _paper(key: str, authors: str, title: str, venue: str, year: str, pages: str = "", url: str = "") -> tuple[str, str]:
    fields = {"author": authors, "title": f"{{{title}}}", "booktitle": venue, "year": year, "pages": pages, "url": url}
    return key, _entry("inproceedings", key, **{name: value for name, value in fields.items() if value})


def _article(key: str, authors: str, title: str, journal: str, year: str, **more: str) -> tuple[str, str]:
    return key, _entry("article", key, author=authors, title=f"{{{title}}}", journal=journal, year=year, **more)


_NAACL, _ACL, _EMNLP = "Proceedings of NAACL-HLT", "Proceedings of ACL", "Proceedings of EMNLP"
_NIPS = "Advances in Neural Information Processing Systems"
BIBTEX: dict[str, str] = dict(
    (
        _paper(
            "jain-wallace-2019-attention",
            "Jain, Sarthak and Wallace, Byron C.",
            "Attention is not Explanation",
            _NAACL,
            "2019",
            "3543--3556",
            "https://aclanthology.org/N19-1357",
        ),
        _paper(
            "serrano-smith-2019-attention",
            "Serrano, Sofia and Smith, Noah A.",
            "Is Attention Interpretable?",
            _ACL,
            "2019",
            "2931--2951",
            "https://aclanthology.org/P19-1282",
        ),
        _paper(
            "wiegreffe-pinter-2019-attention",
            "Wiegreffe, Sarah and Pinter, Yuval",
            "Attention is not not Explanation",
            "Proceedings of EMNLP-IJCNLP",
            "2019",
            "11--20",
            "https://aclanthology.org/D19-1002",
        ),
        _paper(
            "meister-etal-2021-sparse",
            "Meister, Clara and Lazov, Stefan and Augenstein, Isabelle and Cotterell, Ryan",
            "Is Sparse Attention more Interpretable?",
            "Proceedings of ACL-IJCNLP (Volume 2: Short Papers)",
            "2021",
            "122--129",
            "https://aclanthology.org/2021.acl-short.17",
        ),
        _paper(
            "pruthi-etal-2020-learning",
            "Pruthi, Danish and Gupta, Mansi and Dhingra, Bhuwan and Neubig, Graham and Lipton, Zachary C.",
            "Learning to Deceive with Attention-Based Explanations",
            _ACL,
            "2020",
            "4782--4793",
            "https://aclanthology.org/2020.acl-main.432",
        ),
        _paper(
            "martins-astudillo-2016-softmax",
            "Martins, Andr{\\'e} F. T. and Astudillo, Ram{\\'o}n Fernandez",
            "From Softmax to Sparsemax: A Sparse Model of Attention and Multi-Label Classification",
            "Proceedings of ICML",
            "2016",
            "1614--1623",
        ),
        _paper(
            "laha-etal-2018-controllable",
            "Laha, Anirban and Chemmengath, Saneem A. and Agrawal, Priyanka and Khapra, Mitesh M. and Sankaranarayanan, "
            "Karthik and Ramaswamy, Harish G.",
            "On Controllable Sparse Alternatives to Softmax",
            _NIPS,
            "2018",
        ),
        _paper(
            "peters-etal-2019-sparse",
            "Peters, Ben and Niculae, Vlad and Martins, Andr{\\'e} F. T.",
            "Sparse Sequence-to-Sequence Models",
            _ACL,
            "2019",
            "1504--1519",
            "https://aclanthology.org/P19-1146",
        ),
        _paper(
            "socher-etal-2013-recursive",
            "Socher, Richard and Perelygin, Alex and Wu, Jean and Chuang, Jason and Manning, Christopher D. and Ng, Andrew "
            "and Potts, Christopher",
            "Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank",
            _EMNLP,
            "2013",
            "1631--1642",
            "https://aclanthology.org/D13-1170",
        ),
        _paper(
            "maas-etal-2011-learning",
            "Maas, Andrew L. and Daly, Raymond E. and Pham, Peter T. and Huang, Dan and Ng, Andrew Y. and "
            "Potts, Christopher",
            "Learning Word Vectors for Sentiment Analysis",
            "Proceedings of ACL-HLT",
            "2011",
            "142--150",
            "https://aclanthology.org/P11-1015",
        ),
        _paper(
            "lang-1995-newsweeder",
            "Lang, Ken",
            "NewsWeeder: Learning to Filter Netnews",
            "Proceedings of ICML",
            "1995",
            "331--339",
        ),
        _paper(
            "zhang-etal-2015-character",
            "Zhang, Xiang and Zhao, Junbo and LeCun, Yann",
            "Character-level Convolutional Networks for Text Classification",
            _NIPS,
            "2015",
        ),
        _paper(
            "bowman-etal-2015-large",
            "Bowman, Samuel R. and Angeli, Gabor and Potts, Christopher and Manning, Christopher D.",
            "A large annotated corpus for learning natural language inference",
            _EMNLP,
            "2015",
            "632--642",
            "https://aclanthology.org/D15-1075",
        ),
        _article(
            "weston-etal-2015-towards",
            'Weston, Jason and Bordes, Antoine and Chopra, Sumit and Rush, Alexander M. and van Merri{\\"e}nboer, Bart and '
            "Joulin, Armand and Mikolov, Tomas",
            "Towards AI-Complete Question Answering: A Set of Prerequisite Toy Tasks",
            "arXiv preprint arXiv:1502.05698",
            "2015",
        ),
        _paper(
            "hermann-etal-2015-teaching",
            "Hermann, Karl Moritz and Ko{\\v{c}}isk{\\'y}, Tom{\\'a}{\\v{s}} and Grefenstette, Edward and Espeholt, Lasse "
            "and Kay, Will and Suleyman, Mustafa and Blunsom, Phil",
            "Teaching Machines to Read and Comprehend",
            _NIPS,
            "2015",
        ),
        _article(
            "gurulingappa-etal-2012-development",
            "Gurulingappa, Harsha and Rajput, Abdul Mateen and Roberts, Angus and Fluck, Juliane and Hofmann-Apitius, "
            "Martin and Toldo, Luca",
            "Development of a benchmark corpus to support the automatic extraction of drug-related adverse effects from "
            "medical case reports",
            "Journal of Biomedical Informatics",
            "2012",
            volume="45",
            number="5",
            pages="885--892",
        ),
        _article(
            "sarker-gonzalez-2015-portable",
            "Sarker, Abeed and Gonzalez, Graciela",
            "Portable automatic text classification for adverse drug reaction detection via multi-corpus training",
            "Journal of Biomedical Informatics",
            "2015",
            volume="53",
            pages="196--207",
        ),
        _article(
            "johnson-etal-2016-mimic",
            "Johnson, Alistair E. W. and others",
            "MIMIC-III, a freely accessible critical care database",
            "Scientific Data",
            "2016",
            volume="3",
        ),
        _paper(
            "zaidan-eisner-2008-modeling",
            "Zaidan, Omar F. and Eisner, Jason",
            "Modeling Annotators: A Generative Approach to Learning from Annotator Rationales",
            _EMNLP,
            "2008",
            "31--40",
            "https://aclanthology.org/D08-1004",
        ),
        _paper(
            "deyoung-etal-2020-eraser",
            "DeYoung, Jay and Jain, Sarthak and Rajani, Nazneen Fatema and Lehman, Eric and Xiong, Caiming and Socher, "
            "Richard and Wallace, Byron C.",
            "ERASER: A Benchmark to Evaluate Rationalized NLP Models",
            _ACL,
            "2020",
            "4443--4458",
            "https://aclanthology.org/2020.acl-main.408",
        ),
        _paper(
            "zhao-aletras-2023-incorporating",
            "Zhao, Zhixue and Aletras, Nikolaos",
            "Incorporating Attribution Importance for Improving Faithfulness Metrics",
            "Proceedings of ACL 2023 (Volume 1: Long Papers)",
            "2023",
            "4732--4745",
            "https://aclanthology.org/2023.acl-long.261",
        ),
        _paper(
            "diao-etal-2014-jointly",
            "Diao, Qiming and Qiu, Minghui and Wu, Chao-Yuan and Smola, Alexander J. and Jiang, Jing and Wang, Chong",
            "Jointly Modeling Aspects, Ratings and Sentiments for Movie Recommendation (JMARS)",
            "Proceedings of KDD",
            "2014",
        ),
        _paper(
            "sundararajan-etal-2017-axiomatic",
            "Sundararajan, Mukund and Taly, Ankur and Yan, Qiqi",
            "Axiomatic Attribution for Deep Networks",
            "Proceedings of ICML",
            "2017",
            "3319--3328",
        ),
        _paper(
            "zeiler-fergus-2014-visualizing",
            "Zeiler, Matthew D. and Fergus, Rob",
            "Visualizing and Understanding Convolutional Networks",
            "Proceedings of ECCV",
            "2014",
            "818--833",
        ),
        _article(
            "bach-etal-2015-pixelwise",
            "Bach, Sebastian and Binder, Alexander and Montavon, Gregoire and Klauschen, Frederick and Mueller, "
            "Klaus-Robert and Samek, Wojciech",
            "On Pixel-Wise Explanations for Non-Linear Classifier Decisions by Layer-Wise Relevance Propagation",
            "PLOS ONE",
            "2015",
            volume="10",
            number="7",
        ),
        _paper(
            "arras-etal-2017-explaining",
            "Arras, Leila and Montavon, Gregoire and Mueller, Klaus-Robert and Samek, Wojciech",
            "Explaining Recurrent Neural Network Predictions in Sentiment Analysis",
            "Proceedings of WASSA",
            "2017",
            "159--168",
        ),
        _paper(
            "ali-etal-2022-transformers",
            "Ali, Ameen and Schnake, Thomas and Eberle, Oliver and Montavon, Gregoire and Mueller, Klaus-Robert and "
            "Wolf, Lior",
            "XAI for Transformers: Better Explanations through Conservative Propagation",
            "Proceedings of ICML",
            "2022",
            "435--451",
        ),
        _paper(
            "shrikumar-etal-2017-learning",
            "Shrikumar, Avanti and Greenside, Peyton and Kundaje, Anshul",
            "Learning Important Features Through Propagating Activation Differences",
            "Proceedings of ICML",
            "2017",
            "3145--3153",
        ),
        _paper(
            "lundberg-lee-2017-unified",
            "Lundberg, Scott M. and Lee, Su-In",
            "A Unified Approach to Interpreting Model Predictions",
            _NIPS,
            "2017",
        ),
        _paper(
            "ribeiro-etal-2016-trust",
            "Ribeiro, Marco Tulio and Singh, Sameer and Guestrin, Carlos",
            "Why Should I Trust You? Explaining the Predictions of Any Classifier",
            "Proceedings of KDD",
            "2016",
            "1135--1144",
        ),
        _paper(
            "kobayashi-etal-2020-attention",
            "Kobayashi, Goro and Kuribayashi, Tatsuki and Yokoi, Sho and Inui, Kentaro",
            "Attention is Not Only a Weight: Analyzing Transformers with Vector Norms",
            _EMNLP,
            "2020",
            "7057--7075",
        ),
        _article(
            "denil-etal-2015-extraction",
            "Denil, Misha and Demiraj, Alban and de Freitas, Nando",
            "Extraction of Salient Sentences from Labelled Documents",
            "arXiv preprint arXiv:1412.6815",
            "2015",
        ),
    )
)
"""Key -> entry."""
DATASETS: dict[str, tuple[str, ...]] = {
    "sst": ("socher-etal-2013-recursive",),
    "imdb": ("maas-etal-2011-learning",),
    "adr": ("sarker-gonzalez-2015-portable",),
    "ade": ("gurulingappa-etal-2012-development",),
    "20news_sports": ("lang-1995-newsweeder",),
    "ag_news": ("zhang-etal-2015-character",),
    "mimic_diabetes": ("johnson-etal-2016-mimic",),
    "mimic_anemia": ("johnson-etal-2016-mimic",),
    "movie_reviews": ("zaidan-eisner-2008-modeling", "deyoung-etal-2020-eraser"),
    **dict.fromkeys(("babi_1", "babi_2", "babi_3"), ("weston-etal-2015-towards",)),
    **dict.fromkeys(
        (f"babi_qa_{task}{kind}" for task in (1, 2, 3) for kind in ("", "_1k", "_valid")), ("weston-etal-2015-towards",)
    ),
    "snli": ("bowman-etal-2015-large",),
    **dict.fromkeys(("cnn_qa", "daily_mail_qa"), ("hermann-etal-2015-teaching",)),
    **dict.fromkeys(("yelp", "amazon", "yahoo_answers"), ("zhang-etal-2015-character",)),
    "imdb_10": ("diao-etal-2014-jointly",),
    **dict.fromkeys((f"deceptive_{name}" for name in ("occupation", "pronoun", "sst_wiki")), ("pruthi-etal-2020-learning",)),
    "planted_evidence": (),
}
"""Data set of the registry -> whom to cite for it; () where it is this package's own."""
PRODUCERS: dict[str, tuple[str, ...]] = {
    "rationale_erasure": ("deyoung-etal-2020-eraser",),
    "soft_erasure": ("zhao-aletras-2023-incorporating",),
    **dict.fromkeys(
        ("gradient", "leave_one_out", "permutation", "adversary_search", "adversary_exact"), ("jain-wallace-2019-attention",)
    ),
    **dict.fromkeys(("gradient_norm", "gradient_hidden_to_input", "random_support"), ("meister-etal-2021-sparse",)),
    **dict.fromkeys(("erasure", "minimal_flip_set", "attention_x_gradient"), ("serrano-smith-2019-attention",)),
    "gradient_x_input": ("denil-etal-2015-extraction",),
    "integrated_gradients": ("sundararajan-etal-2017-axiomatic",),
    "occlusion": ("zeiler-fergus-2014-visualizing",),
    "attention_norm": ("kobayashi-etal-2020-attention",),
    "lrp": ("bach-etal-2015-pixelwise", "arras-etal-2017-explaining", "ali-etal-2022-transformers"),
    "deeplift": ("shrikumar-etal-2017-learning",),
    "kernel_shap": ("lundberg-lee-2017-unified",),
    "lime": ("ribeiro-etal-2016-trust",),
}
"""Measure or experiment -> the paper that it comes from, or whose test it varies."""
PROJECTIONS = {
    "sparsemax": "martins-astudillo-2016-softmax",
    "sparsegen": "laha-etal-2018-controllable",
    "entmax15": "peters-etal-2019-sparse",
    "entmax": "peters-etal-2019-sparse",
}
OBJECTIVES = {"adversarial": "wiegreffe-pinter-2019-attention", "guided": "wiegreffe-pinter-2019-attention"}


def keys(checkpoint: Checkpoint) -> list[str]:
    """What the card of a checkpoint cites: its data set, its projection and objective, its measurements, and Pruthi et al.,
    whom every card names.
    """
    identity = checkpoint.heading
    found = list(DATASETS.get(identity["dataset"], ()))
    found += _known(PROJECTIONS, [checkpoint.cell.identity.projection])
    found += _known(OBJECTIVES, [checkpoint.cell.identity.objective])
    for settings in checkpoint.settings:
        for name in settings.get("producers", ()):
            found += PRODUCERS.get(name, ())
    return list(dict.fromkeys([*found, "pruthi-etal-2020-learning"]))


def _known(table: Mapping[str, str], names: Iterable[str]) -> list[str]:
    return [table[name] for name in names if name in table]


def bibtex(names: Iterable[str]) -> str:
    """The entries of these keys, one after the other. KeyError for one the table does not hold."""
    return "\n".join(BIBTEX[name] for name in names)
