"""`python -m simdformer`: jobs, see `docs/jobs.md`."""

import sys

if __name__ == "__main__":
    try:
        from .jobs.cli import main
    except ImportError as error:
        print(f"simdformer: {error}: pip install 'simdformer[jobs]'", file=sys.stderr)
        sys.exit(2)
    sys.exit(main())
