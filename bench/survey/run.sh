#!/bin/sh
# One sitting of one part of the survey: at most eight minutes, one JSON file in the folder given.
#
#     bench/survey/run.sh PART --commit SHA --out DIR [--dry] [--seconds N] [--results DIR]
#                         [--rows GLOB] [--stand-in DIR]
#
# PART is 1 peaks, 2 outside the allocator, 3 rates, 4 peers' step times. Options: survey.py --help.
# The Python that holds torch is $PYTHON, else python3. --dry needs no torch and no GPU.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
PYTHONDONTWRITEBYTECODE=1 exec "${PYTHON:-python3}" "$here/survey.py" "$@"
