// tuned_rows.h: rows of tuned.h, as tests/gpu/check.sh tune writes them. None yet: no GPU was measured.
