"""attnfaith: does attention explain what a model does?

Importing the package makes its models known to the Auto classes of transformers and its metric to `evaluate.load`. Both
happen when those libraries are imported, so that `import attnfaith` itself loads neither torch nor transformers.
"""

__version__ = "0.1.0"
