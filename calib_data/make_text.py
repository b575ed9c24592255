#!/usr/bin/env python3
"""Writes text of our own: stories, dialogues, explanations, lists, sums, letters, code, a little of other languages.

Everything comes from hand-written templates (text_stories.py, text_facts.py, text_shapes.py) and a seeded random
choice; the same arguments give the same bytes. A document belongs to the kind that its own hash names, so no document
stands in two of train, calib and test.
Run: python3 calib_data/make_text.py --kind train|calib|test --bytes N --seed S > text
"""
import argparse
import hashlib
import random
import sys

import text_facts
import text_shapes
import text_stories
from text_pen import Pen

KINDS = {"train": range(0, 14), "calib": range(14, 15), "test": range(15, 16)}

# How often each sort of document is written.
MAKERS = [(weight, maker) for part in (text_stories, text_facts, text_shapes) for weight, maker in part.MAKERS]


def kind_of(turns):
    text = "\0".join(text for _, text in turns)
    slot = hashlib.sha256(text.encode("utf-8")).digest()[0] % 16
    return next(kind for kind, slots in KINDS.items() if slot in slots)


def documents(kind, seed, inventive=False):
    """Yields documents for ever: lists of (role, text), role being text, or system, user and assistant in a chat."""
    pen = Pen(random.Random(f"{kind} {seed}"), inventive)
    weights, makers = [w for w, _ in MAKERS], [m for _, m in MAKERS]
    while True:
        made = pen.rng.choices(makers, weights)[0](pen)
        turns = [("text", made)] if isinstance(made, str) else made
        if kind_of(turns) == kind:
            yield turns


def as_block(turns):
    """A document as one block of plain text, without blank lines inside."""
    names = {"text": "", "system": "", "user": "Q: ", "assistant": "A: "}
    return "\n".join(names[role] + text for role, text in turns)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--kind", choices=KINDS, default="calib")
    p.add_argument("--bytes", type=int, default=200_000)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    written, seen = 0, set()
    for turns in documents(args.kind, args.seed):
        block = (as_block(turns) + "\n").encode("utf-8")
        if block in seen:
            continue
        seen.add(block)
        if written:
            block = b"\n" + block
        if written + len(block) > args.bytes:
            break
        sys.stdout.buffer.write(block)
        written += len(block)


if __name__ == "__main__":
    main()
