#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/bench/stats.py with the lab's width: emulated guests scatter more, so that a ratio is judged
when its 95 % interval is narrower than +-15 % instead of +-5 %."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import stats  # noqa: E402

stats.HALF_WIDTH_MAX = 0.15

if __name__ == "__main__":
    stats.main()
