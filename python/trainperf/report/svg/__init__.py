"""Charts as SVG text, from plain numbers: one chart per file. Everything that comes from a run is escaped here.

Charts have no width of their own: they fill their figure, and what they write (labels of frames, pieces) is cut
where its piece ends, so that they read on a phone as on a desk.
"""
