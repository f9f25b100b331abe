"""The Space: a page that measures a model on one typed sentence and lets the reader try it.

`answers`: what is computed and said, without a page. `app`: the page, which needs gradio, the extra `space`.
"""
