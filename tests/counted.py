# counted.py: what a test script counts and prints, as tests/unit/test.h does for C: check() and skip() go on, end() prints
# the closing line and gives the exit status.
passed = failed = skipped = 0


def check(good, *what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED:", *what, flush=True)
    return bool(good)


def told(good, *what):
    """The same, which says what held too: figures that a reader may want to see."""
    if check(good, *what):
        print("ok:    ", *what)


def skip(*why):
    global skipped
    skipped += 1
    print("SKIPPED:", *why)


def end():
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0
