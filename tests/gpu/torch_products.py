#!/usr/bin/env python3
"""torch_products.py [NxK]...: what torch takes for the same products in bf16 (cuBLASLt), as time_products.c prints it: weights in copies that no cache
holds, all of them in one CUDA graph, medians of 20 replays."""
import statistics
import sys
import time

import torch

SHAPES = [tuple(map(int, word.split("x"))) for word in sys.argv[1:]] or [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (57344, 8192)]
ROWS, ALL = (1, 8, 16, 64, 256, 1024), 512 << 20

for n, k in SHAPES:
    copies = max(2, min(64, ALL // (2 * n * k)))
    weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * 0.01 for _ in range(copies)]
    for rows in ROWS:
        x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
        torch.matmul(x, weights[0].t())
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for w in weights:
                y = torch.matmul(x, w.t())
        took = []
        for i in range(22):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            took.append((time.perf_counter() - begin) / copies)
        s, best = statistics.median(took[2:]), min(took[2:])
        print(f"torch bf16,{n},{k},{rows},{2 * n * k},{s * 1e6:.3f},{best * 1e6:.3f},{2 * n * k / s * 1e-9:.1f},,{2 * n * k * rows / s * 1e-12:.2f}", flush=True)
    del weights
