"""Recorded run files with the truth of their programs, judged again in seconds: the gate of every change to a rule."""
