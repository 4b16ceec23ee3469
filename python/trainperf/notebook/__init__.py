"""In a notebook: the report below a cell, `%%trainperf`, and watches that cells leave open."""
