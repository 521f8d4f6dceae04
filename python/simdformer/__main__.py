"""`python -m simdformer`: jobs, see `docs/jobs.md`."""

import sys

from .jobs.cli import main

if __name__ == "__main__":
    sys.exit(main())
