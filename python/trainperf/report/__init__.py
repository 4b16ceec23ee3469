"""Views of a run: one model, made once, and one module per format."""
