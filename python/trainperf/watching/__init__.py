"""The parts of a Watch, which watch.py puts together."""
