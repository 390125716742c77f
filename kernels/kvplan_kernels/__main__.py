"""`python -m kvplan_kernels`."""

import sys

from kvplan_kernels.bench import main

sys.exit(main())
