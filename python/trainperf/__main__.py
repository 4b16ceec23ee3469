"""`python -m trainperf` is the `trainperf` command."""

import sys

from trainperf.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
