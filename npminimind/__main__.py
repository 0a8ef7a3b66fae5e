"""``python -m npminimind`` is the ``npminimind`` command."""

import sys

from .cli import main

sys.exit(main())
