"""captum, which some measures are made with and the package does without."""


def captum():
    """The module captum.attr. Raises ValueError where captum, or scikit-learn, which it fits with, is not installed."""
    try:
        import captum.attr
        import sklearn  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"this measure needs captum and scikit-learn ({error}): pip install 'attnfaith[captum]', or leave it out"
        ) from error
    return captum.attr
