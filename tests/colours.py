"""Colours as people see them whose eyes lack one of three kinds of cones, and how far apart two are."""

import numpy as np


DEFICIENCIES = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Machado, Oliveira & Fernandes (2009), table of severity 1.0: matrices of linear RGB."""
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
"""IEC 61966-2-1: linear sRGB to CIE XYZ, white D65."""


def linear(colour):
    """Linear RGB of "#rrggbb", each of 0..1."""
    encoded = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def seen(colour, deficiency=None):
    """Linear RGB as it looks with a deficiency, or without."""
    matrix = np.eye(3) if deficiency is None else np.array(DEFICIENCIES[deficiency])
    return np.clip(matrix @ linear(colour), 0, 1)


def lab(rgb):
    """CIE L*a*b* of linear RGB."""
    ratio = np.array(TO_XYZ) @ rgb / (np.array(TO_XYZ) @ np.ones(3))
    curve = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * curve[1] - 16, 500 * (curve[0] - curve[1]), 200 * (curve[1] - curve[2])])


def difference(first, second, deficiency=None):
    """CIE 1976 difference of two colours: about 2.3 can just be noticed."""
    return float(np.linalg.norm(lab(seen(first, deficiency)) - lab(seen(second, deficiency))))


def contrast(first, second):
    """WCAG 2 contrast of two colours, 1..21."""
    one, other = (float(np.array(TO_XYZ[1]) @ linear(colour)) for colour in (first, second))
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)
