"""`python -m ctmoments` is the command `ctmoments`."""

import sys

from ctmoments.use.cli import main

if __name__ == "__main__":
    sys.exit(main())
