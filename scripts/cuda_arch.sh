#!/bin/sh
# The compute capability of the first GPU here as nvcc counts, 90 for 9.0; 90 where there is none.
nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -d . | grep -E '^[0-9]+$' || echo 90
