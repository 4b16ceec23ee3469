"""The `trainperf` command: main.py, and one module per subcommand."""
