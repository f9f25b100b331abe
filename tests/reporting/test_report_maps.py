"""What a report says of the maps of a stack of layers, against numbers worked out one text at a time."""

import numpy as np
import pyarrow as pa
import pytest

from attnfaith.interventions.pooled_erasure import RANKINGS
from attnfaith.measurement.registry import find
from attnfaith.reporting import render, sections, write_report
from attnfaith.reporting.cells import one_cell
from tests.sections import check_columns


NAMES = ("map_interventions", "marker_attention", "map_erasure", "map_adversary", "aopc_limits")
STACK = {"model": "self_attention", "encoder": "bert", "alignment": "dot", "reduction": "mean", "reduction_layers": "last"}


def with_columns(record, measure, **columns):
    for name, values in columns.items():
        field = find(measure).columns[name].field(name)
        plain = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
        record = record.append_column(field, pa.array(plain, field.type))
    return record


WEIGHTS = ([0.5, 0.3, 0.2], [0.1, 0.9], [1.0], [])
PROBS = ([0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4])


def bare(build_record, **identity):
    given = [{"attention": a, "probs": p} for a, p in zip(WEIGHTS, PROBS, strict=True)]
    return build_record(given, **{**STACK, **identity})


@pytest.fixture
def record(build_record):
    """Texts of three, two, one and no tokens under all experiments on maps."""
    nan = float("nan")
    table = with_columns(
        bare(build_record),
        "map_permutation",
        map_permuted_probs=[[[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]], [[0.2, 0.8], [0.24, 0.76]], [], []],
    )
    table = with_columns(table, "map_uniform", map_uniform_probs=[[0.8, 0.2], [0.6, 0.4], [0.6, 0.4], [0.6, 0.4]])
    table = with_columns(table, "marker_attention", marker_attention=[0.2, 0.7, 0.3, 1.0])
    table = with_columns(
        table,
        "map_erasure",
        map_erasure_gradient=[[0.1, -0.2, 0.3], [0.4, 0.1], [0.0], []],
        map_erasure_attention_gradient=[[0.05, -0.06, 0.04], [0.04, 0.09], [0.0], []],
        map_erasure_probs=[[[0.6, 0.4], [0.9, 0.1], [0.3, 0.7]], [[0.2, 0.8], [0.7, 0.3]], [[0.6, 0.4]], []],
        map_erasure_order=[[[1, 0, 2]], [[0, 1]], [], []],
        **{f"map_erasure_flip_size_{name}": [2.0, 1.0, nan, nan] for name in ("attention", "attention_gradient")},
        map_erasure_flip_size_gradient=[1.0, nan, nan, nan],
        map_erasure_flip_size_random=[[3.0], [2.0], [], []],
        **{f"map_erasure_flip_mass_{name}": [0.8, 0.9, nan, nan] for name in ("attention", "attention_gradient")},
        map_erasure_flip_mass_gradient=[0.2, nan, nan, nan],
        map_erasure_flip_mass_random=[[1.0], [1.0], [], []],
        **{f"map_erasure_flip_empty_{name}": [False] * 4 for name in RANKINGS},
        map_erasure_flip_empty_random=[[True], [True], [], []],
    )
    table = with_columns(
        table,
        "map_adversary",
        map_adversary_attention=[[0.2, 0.3, 0.5], [0.9, 0.1], [1.0], []],
        map_adversary_probs=[[0.89, 0.11], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4]],
        map_adversary_jsd=[0.05, 0.4, nan, nan],
        map_adversary_change=[0.01, 0.0, nan, nan],
        map_adversary_certainty=["lower bound", "lower bound", "undefined", "undefined"],
    )
    return with_columns(
        table,
        "aopc_limits",
        aopc_limits_measures=[["attention", "gradient"]] * 4,
        aopc_limits_aopc=[[0.3, 0.1], [0.2, nan], [0.4, 0.4], [nan, nan]],
        aopc_limits_low=[0.1, 0.1, 0.4, nan],
        aopc_limits_high=[0.5, 0.3, 0.4, nan],
        aopc_limits_low_bound=[-0.1, 0.1, 0.4, nan],
        aopc_limits_high_bound=[0.7, 0.3, 0.4, nan],
        aopc_limits_certainty=["bounded", "exact", "exact", "undefined"],
    )


def test_numbers_of_single_texts(record):
    values = sections.numbers(one_cell(record))
    nan = np.nan
    expected = {
        "map_permutation_tvd": [0.2, 0.02, nan, nan],
        "map_permutation_flips": [1 / 3, 0, nan, nan],
        "map_uniform_tvd": [0.1, 0.4, nan, nan],
        "map_uniform_flips": [0, 1, nan, nan],
        "marker_attention": [0.2, 0.7, 0.3, 1.0],
        "map_erasure_tvd_attention": [0.3, 0.5, nan, nan],
        "map_erasure_tvd_gradient": [0.6, 0, nan, nan],
        "map_erasure_tvd_attention_gradient": [0.3, 0.5, nan, nan],
        "map_erasure_tvd_random": [0, 0, nan, nan],
        "map_erasure_top_flips_gradient": [1, 0, nan, nan],
        "map_erasure_flip_fraction_attention": [2 / 3, 0.5, nan, nan],
        "map_erasure_flip_fraction_gradient": [1 / 3, nan, nan, nan],
        "map_erasure_mass_gradient": [0.2, nan, nan, nan],
        "map_adversary_jsd": [0.05, 0.4, nan, nan],
        "map_adversary_tvd": [0.3, 0.8, nan, nan],
        "naopc_attention": [0.5, 0.5, nan, nan],
        "naopc_gradient": [0, nan, nan, nan],
    }
    for name, numbers in expected.items():
        np.testing.assert_allclose(values[name], numbers, atol=1e-6, err_msg=name)


def test_tables(record):
    frames = sections.frames([one_cell(record)])
    maps = frames["map_interventions"].set_index(["maps", "class"])
    row = maps.loc["map_permutation", "overall"]
    assert (row["n"], row["n_undefined"]) == (2, 2) and row["share_below_0.05"] == 0.5
    assert row["tvd_mean"] == pytest.approx(0.11) and row["flip_share"] == pytest.approx(1 / 6)
    assert maps.loc[("map_uniform", "overall"), "tvd_mean"] == pytest.approx(0.25)
    erased = frames["map_erasure"].set_index("ranking")
    assert erased.loc["gradient", "n_never"] == 1 and erased.loc["gradient", "n_averaged"] == 1
    assert erased.loc["gradient", "censored_median"] == pytest.approx((1 / 3 + 1) / 2)
    assert erased.loc["random", "fraction_mean"] == 1
    limits = frames["aopc_limits"].set_index("scores")
    row = limits.loc["attention"]
    assert (row["n"], row["n_undefined"], row["removal"]) == (2, 2, "aopc_limits")
    # of the first text 0.2 / 0.6 to 0.4 / 0.6, of the second 0.5
    assert (row["naopc_low_mean"], row["naopc_high_mean"]) == pytest.approx(((1 / 3 + 0.5) / 2, (2 / 3 + 0.5) / 2))
    assert row["share_exact"] == pytest.approx(2 / 3)
    assert frames["marker_attention"].iloc[0]["share_above_0.5"] == 0.5
    assert frames["map_adversary"].iloc[0]["change_max"] == pytest.approx(0.01)


def test_sentences(record):
    cell = one_cell(record)
    said = {name: " ".join(render.sentences(sections.known()[name], cell)) for name in NAMES}
    assert (
        "Permuting the weights on tokens in all heads of the changed layers moves the prediction by a median"
        in (said["map_interventions"])
    )
    assert "0.110 on average over 2 texts, in 50% of them by less than 0.05" in said["map_interventions"]
    assert "Dividing weight equally among tokens" in said["map_interventions"]
    assert "55% of the attention that is shown lies on markers" in said["marker_attention"]
    assert (
        "by a total variation distance of 0.400 on average over 2 texts; without any on a token drawn at random by 0.000"
        in (said["map_erasure"])
    )
    assert "by gradient 33% on average (1 never change)" in said["map_erasure"]
    assert "0.225 nats away on average over 2 texts" in said["map_adversary"]
    assert "change the prediction by no more than 0.010" in said["map_adversary"]
    assert "attention 0.50, gradient 0.00; limits are exact in 67% of 3 texts" in said["aopc_limits"]


@pytest.mark.parametrize("name", NAMES)
def test_a_section_depends_on_the_columns_that_it_names(name, record):
    check_columns(sections.known()[name], one_cell(record))


@pytest.mark.slow
def test_a_page_is_made_of_them(record, tmp_path):
    write_report(record, tmp_path)
    page = (tmp_path / "index.html").read_text()
    for caption in ("Other attention maps", "Attention on markers", "Tokens erased from attention maps", "AOPC between its"):
        assert caption in page


def test_nothing_to_change(build_record):
    """A record of texts too short for anything says so."""
    nan = float("nan")
    table = build_record([{"attention": [1.0], "probs": [0.9, 0.1]}], **STACK)
    table = with_columns(table, "map_permutation", map_permuted_probs=[[]])
    table = with_columns(table, "map_uniform", map_uniform_probs=[[0.9, 0.1]])
    table = with_columns(
        table,
        "map_adversary",
        map_adversary_attention=[[1.0]],
        map_adversary_probs=[[0.9, 0.1]],
        map_adversary_jsd=[nan],
        map_adversary_change=[nan],
        map_adversary_certainty=["undefined"],
    )
    said = [render.sentences(sections.known()[name], one_cell(table)) for name in ("map_interventions", "map_adversary")]
    assert said[0] == ["No text has two tokens, so attention maps stay as they are (1 undefined)."] * 2
    assert said[1] == ["No text has two tokens, so there is no other attention (1 undefined)."]
