// test_writer.c: what is written reads back, lies where the format says, and is the same bytes whether or not the work
// was interrupted: the journal cut at every byte, every byte of it damaged, the writer killed at random moments.
#include "formats/parts.h"
#include "tests/unit/lq_make.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static char out[96], partial[128];

static bool exists(const char *path) { return access(path, F_OK) == 0; }

static bool same_bytes(blob a, blob b) { return a.p && b.p && a.n == b.n && !memcmp(a.p, b.p, a.n); }

static blob reference(void) {
    lq_err err = {0};
    bool ok = make_lq(out, false, false, &err);
    CHECK(ok, "%s", err.text);
    CHECK(!exists(partial), "nothing is left beside it");
    blob b = blob_read(out);
    unlink(out);
    return b;
}

// --- what is written ---

static void check_weight(const lq_ckpt *c, int i, int which) {
    static make_buffers b;
    char name[64];
    lq_weight got, want = make_weight(which, &b);
    lq_err err = {0};
    snprintf(name, sizeof name, "model.layers.%d.w%d", i / 2, i % 2);
    bool ok = lq_ckpt_weight(c, name, MAKE_N, MAKE_K, &got, &err);
    CHECK(ok, "%s", err.text);
    if (!ok) return;
    CHECK(lq_wtype_equal(&got.type, &want.type) && got.layout == LQ_ANY && got.outliers == want.outliers, "%s: type",
          name);
    bool same = true;
    float x[MAKE_K], y[MAKE_K];
    for (int64_t r = 0; r < MAKE_N; r++) {
        lq_weight_row_any(&got, r, x);
        lq_weight_row_any(&want, r, y);
        same &= !memcmp(x, y, sizeof x);
    }
    CHECK(same && (uintptr_t)got.q % 64 == 0 && (uintptr_t)got.scale % 64 == 0, "%s: rows", name);
    CHECK(!got.act_scale == !want.act_scale && (!got.act_scale ||
                                                (*got.act_scale == *want.act_scale && *got.act_zero == *want.act_zero)),
                                                "%s: act", name);
    CHECK(!got.perm == !want.perm && !got.smooth == !want.smooth &&
          (!got.smooth || !memcmp(got.smooth, want.smooth, sizeof b.smooth)),
        "%s: parts", name);
    CHECK(!lq_ckpt_weight(c, name, MAKE_N, MAKE_K + 1, &got, &err) && err_good(&err, out) && strstr(err.text, name),
          "%s", err.text);
    CHECK(lq_ckpt_has_weight(c, name) && !lq_ckpt_find(c, name), "coded, not plain");
}

static void test_read_back(void) {
    lq_err err = {0};
    lq_ckpt *c = NULL;
    bool ok = make_lq(out, true, false, &err) && lq_ckpt_open(out, &c, &err);
    CHECK(ok, "%s", err.text);
    if (!ok) return;
    CHECK(!strcmp(lq_ckpt_container(c), "lq") && !strcmp(lq_ckpt_path(c), out), "container");
    CHECK(lq_ckpt_verify(c, NULL, NULL, &err), "%s", err.text);
    for (int i = 0; i < 2 * MAKE_BLOCKS; i++) check_weight(c, i, i % MAKE_FEATURES);
    for (size_t i = 0; i < lq_ckpt_count(c); i++) {
        const lq_tensor *t = lq_ckpt_at(c, i);
        CHECK(lq_ckpt_find(c, t->name) == t && strncmp(t->name, "lq.", 3) != 0, "%s", t->name);
        CHECK(!i || strcmp(lq_ckpt_at(c, i - 1)->name, t->name) < 0, "%s: order", t->name);
        size_t place = (size_t)((const uint8_t *)t->data - (const uint8_t *)lq_ckpt_at(c, 0)->data);
        CHECK((uintptr_t)t->data % (t->bytes >= 4096 ? 4096 : 64) == 0, "%s at %zu", t->name, place);
        lq_ckpt_drop(c, t);
    }
    lq_bytes file;
    CHECK(lq_ckpt_file(c, "config.json", &file, &err) && file.n == 17 && !memcmp(file.p, "{\"hidden_size\":1}", 17),
          "config");
    CHECK(blob_write(at("merges.txt"), "x", 1) && lq_ckpt_file(c, "merges.txt", &file, &err) && !file.p,
          "what lies beside does not count");
    CHECK(!lq_ckpt_file(c, "../etc/passwd", &file, &err) && !lq_ckpt_file(c, "..", &file, &err), "no paths");
    CHECK(!strcmp(lq_ckpt_meta(c, "lq.arch"), "LlamaForCausalLM") && !lq_ckpt_meta(c, "none"), "metadata");
    lq_weight w;
    CHECK(lq_ckpt_weight(c, "model.layers.1.norm", 33, 0, &w, &err) && w.type.kind == LQ_W_PLAIN && w.n == 33 &&
          w.k == 1, "%s", err.text);
    CHECK(!lq_ckpt_weight(c, "absent", 1, 0, &w, &err) && strstr(err.text, "absent"), "%s", err.text);
    CHECK(!lq_ckpt_weight(c, "empty", 0, 3, &w, &err), "an integer tensor is no weight");
    CHECK(!lq_ckpt_find(c, "lq.pad/0"), "padding is not seen");
    blob b = blob_read(out);
    CHECK(lq_ckpt_file_bytes(c) == b.n && b.n % 64 != 1, "size");
    free(b.p);
    lq_ckpt_close(c);
    unlink(at("merges.txt"));
    unlink(out);
}

// A file in layout x86: int4, int8 and nvfp4 in tiles, what has no form there stays any.
static void test_layout(void) {
    static make_buffers b;
    lq_err err = {0};
    lq_writer *w = NULL;
    lq_writer_opts o = {.out = out, .fingerprint = "x86", .header_room = make_room()};
    bool ok = lq_writer_open(&o, &w, &err) && lq_writer_meta(w, "lq.layout", "x86", &err);
    CHECK(ok, "%s", err.text);
    for (int i = 0; i < MAKE_FEATURES && ok; i++) {
        lq_weight q = make_weight(i, &b);
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        const bool tiles = (q.type.kind == LQ_W_INT && q.type.bits != 3) || q.type.book;
        if (tiles) CHECK(!lq_writer_weight(w, name, &q, &err) && err.code == LQ_E_USAGE, "any in an x86 file");
        if (tiles) q.layout = LQ_X86;
        ok = lq_writer_weight(w, name, &q, &err);
        CHECK(ok, "%s", err.text);
    }
    ok = ok && lq_writer_commit(w, NULL, NULL, &err);
    CHECK(ok, "%s", err.text);
    lq_writer_close(w, false);
    lq_ckpt *c = NULL;
    CHECK(ok && lq_ckpt_open(out, &c, &err) && lq_ckpt_verify(c, NULL, NULL, &err), "%s", err.text);
    for (int i = 0; i < MAKE_FEATURES && c; i++) {
        lq_weight got;
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        CHECK(lq_ckpt_weight(c, name, MAKE_N, MAKE_K, &got, &err) && got.layout == (i < 3 || i > 5 ? LQ_X86 : LQ_ANY),
              "%s: layout", name);
    }
    const lq_tensor *q = c ? lq_ckpt_find(c, "w1.q") : NULL, *z = c ? lq_ckpt_find(c, "w1.zero") : NULL;
    CHECK(q && q->rank == 2 && q->shape[0] == 2 && q->shape[1] == 16 * MAKE_K / 2 && z && z->rank == 3 &&
          z->shape[1] == 3 &&
        z->shape[2] == 16, "shapes of tiles");
    lq_ckpt_close(c);
    unlink(out);
}

// What is refused before it is written, as a reader would refuse it after.
static void test_weights_refused(void) {
    static make_buffers b;
    lq_err err = {0};
    lq_writer *w = NULL;
    CHECK(make_open(out, false, false, &w, &err), "%s", err.text);
    lq_weight q = make_weight(5, &b);
    q.outlier = b.cols, q.outlier_w = b.outlier, q.outliers = MAKE_K + 1;
    CHECK(!lq_writer_weight(w, "w", &q, &err) && err.code == LQ_E_USAGE && strstr(err.text, "outlier columns"), "%s",
          err.text);
    CHECK(!lq_writer_meta(w, "lq.shard", "1/2", &err) && err.code == LQ_E_USAGE, "%s", err.text);
    lq_writer_close(w, true);
}

// The room that is asked for before the work is enough for a weight with every part it may have, whatever its name.
static void test_room(void) {
    static make_buffers b;
    for (int i = 0; i < 2 * MAKE_FEATURES; i++) {
        lq_err err = {0};
        lq_writer *w = NULL;
        lq_weight q = make_weight(i % MAKE_FEATURES, &b);
        char name[LQ_NAME];
        memset(name, i < MAKE_FEATURES ? 'a' : '"', sizeof name);
        name[LQ_NAME - 1 - (int)strlen(lq_part_suffix(LQ_PART_OUTLIER_COLS))] = 0;
        q.smooth = b.smooth;
        if (i % 2) q.perm = b.perm;
        else q.outlier = b.cols, q.outlier_w = b.outlier, q.outliers = 2;
        lq_writer_opts o = {.out = out, .fingerprint = "", .header_room = lq_writer_weight_room(name, &q.type)};
        bool ok = lq_writer_open(&o, &w, &err) && lq_writer_weight(w, name, &q, &err) &&
                  lq_writer_commit(w, NULL, NULL, &err);
        CHECK(ok, "%d: %s", i, err.text);
        lq_writer_close(w, !ok);
        unlink(out);
    }
}

// --- a large file ---

typedef struct mapped { size_t most, calls; } mapped;

static bool mapped_note(void *arg, size_t done, size_t total) {
    mapped *m = arg;
    size_t now = pages_mapped();
    if (now > m->most) m->most = now;
    m->calls += done <= total;
    return true;
}

// Checking it holds little of it, and neither that nor lq_ckpt_drop takes it from the system's cache.
static void test_large(void) {
    enum { BYTES = 9 << 20, COUNT = 10 };
    char path[64] = "/tmp/lq_large_XXXXXX", name[16];
    lq_err err = {0};
    lq_writer *w = NULL;
    lq_ckpt *c = NULL;
    uint8_t *data = malloc(BYTES);
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    for (size_t i = 0; i < BYTES; i++) data[i] = (uint8_t)(i * 7 >> 3);
    lq_writer_opts o = {.out = path, .overwrite = true, .header_room = 8192};
    bool ok = fd >= 0 && lq_writer_open(&o, &w, &err);
    for (int i = 0; i < COUNT && ok; i++) {
        snprintf(name, sizeof name, "t%d", i);
        ok = lq_writer_add(w, name, LQ_U8, 1, (int64_t[]){BYTES}, data, &err);
    }
    size_t before = pages_mapped();
    mapped m = {0};
    ok = ok && lq_writer_commit(w, NULL, NULL, &err) && lq_ckpt_open(path, &c, &err) &&
         lq_ckpt_verify(c, mapped_note, &m, &err);
    CHECK(ok, "%s", err.text);
    lq_writer_close(w, !ok);
    if (ok) {
        CHECK(m.calls >= COUNT && m.most < before + (40u << 20), "%zu MiB of %d were held", (m.most - before) >> 20,
              COUNT * BYTES >> 20);
        const lq_tensor *t = lq_ckpt_find(c, "t3");
        size_t page = (size_t)sysconf(_SC_PAGESIZE), in = 0, pages = BYTES / page;
        unsigned char *seen = calloc(pages, 1);
        CHECK(!memcmp(t->data, data, BYTES), "t3");
        lq_ckpt_drop(c, t);
        CHECK(!mincore((void *)(uintptr_t)t->data, BYTES, seen), "mincore");
        for (size_t i = 0; i < pages; i++) in += seen[i] & 1;
        CHECK(in > pages / 2, "%zu of %zu pages are still in the cache", in, pages);
        free(seen);
    }
    lq_ckpt_close(c);
    unlink(path);
    free(data);
}

static void test_plain(void) {
    lq_err err = {0};
    lq_writer *w = NULL;
    lq_writer_opts o = {.out = out, .fingerprint = "", .plain = true, .header_room = 4096};
    static const float v[6] = {1, 2, 3, 4, 5, 6};
    bool ok = lq_writer_open(&o, &w, &err) && lq_writer_meta(w, "format", "pt", &err);
    ok = ok && lq_writer_add(w, "b \"quoted\" \\ \xc3\xa9", LQ_F32, 2, (int64_t[]){2, 3}, v, &err) &&
         lq_writer_add(w, "a", LQ_U8, 1, (int64_t[]){3}, v, &err);
    ok = ok && lq_writer_add(w, "c", LQ_BF16, 1, (int64_t[]){5}, v, &err) &&
         lq_writer_add(w, "scalar", LQ_F64, 0, NULL, v, &err) && lq_writer_commit(w, NULL, NULL, &err);
    CHECK(ok, "%s", err.text);
    lq_writer_close(w, false);
    lq_ckpt *c = NULL;
    CHECK(lq_ckpt_open(out, &c, &err) && !strcmp(lq_ckpt_container(c), "safetensors") && lq_ckpt_count(c) == 4, "%s",
          err.text);
    if (!c) return;
    const lq_tensor *t = lq_ckpt_find(c, "b \"quoted\" \\ \xc3\xa9");
    CHECK(t && !memcmp(t->data, v, sizeof v) && !strcmp(lq_ckpt_meta(c, "format"), "pt"), "read back");
    // `c` begins at an odd byte: it binds through an aligned copy, the same one each time.
    lq_weight a, b;
    t = lq_ckpt_find(c, "c");
    CHECK((uintptr_t)t->data % 2 == 1 && lq_ckpt_weight(c, "c", 5, 0, &a, &err) &&
          lq_ckpt_weight(c, "c", 5, 0, &b, &err), "%s", err.text);
    CHECK((uintptr_t)a.q % 2 == 0 && a.q == b.q && !memcmp(a.q, v, 10), "aligned copy");
    lq_ckpt_close(c);
    unlink(out);
}

// --- what is refused ---

static void test_refusals(void) {
    lq_err err = {0};
    lq_writer *w = NULL, *second = NULL;
    static const char d[64];
    int64_t one[] = {1}, neg[] = {-1}, huge[] = {INT64_MAX, 3};
    char longname[LQ_NAME + 8];
    memset(longname, 'a', sizeof longname), longname[sizeof longname - 1] = 0;
    CHECK(make_open(out, false, false, &w, &err), "%s", err.text);
    CHECK(!make_open(out, true, false, &second, &err) && err_good(&err, out), "a second writer: %s", err.text);
    static const char *const names[] = {"", "lq.pad/0", "__metadata__", "a\nb", "bad\xff", "lq.file/../x", "lq.file/",
                                        "lq.file/a/b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(!lq_writer_add(w, names[i], LQ_U8, 1, one, d, &err) && err_good(&err,
        out), "%s: %s", names[i], err.text);
    CHECK(!lq_writer_add(w, longname, LQ_U8, 1, one, d, &err), "a long name");
    CHECK(!lq_writer_add(w, "a", LQ_U8, 1, neg, d, &err) && !lq_writer_add(w, "a", LQ_F32, 2, huge, d, &err) &&
          !lq_writer_add(w, "a",
        LQ_U8, 9, huge, d, &err) &&
          !lq_writer_add(w, "a", LQ_DTYPES, 1, one, d, &err) && !lq_writer_add(w, "a", LQ_U8, 1, one, NULL, &err),
          "shapes and types");
    CHECK(lq_writer_add(w, "a", LQ_U8, 1, one, d, &err) && !lq_writer_add(w, "a", LQ_U8, 1, one, d, &err) &&
          strstr(err.text, "twice"),
        "%s", err.text);
    CHECK(!lq_writer_meta(w, "lq.xxh64", "{}", &err) && !lq_writer_meta(w, "lq.version", "1", &err), "own metadata");
    lq_writer_close(w, true);
    CHECK(!exists(partial) && !exists(out), "discarded");

    lq_writer_opts o = {.out = out, .fingerprint = "", .header_room = 0};
    CHECK(lq_writer_open(&o, &w, &err), "%s", err.text);
    bool ok = true;
    char name[32];
    for (int i = 0; i < 100 && ok; i++)
        snprintf(name, sizeof name, "t%d", i), ok = lq_writer_add(w, name, LQ_U8, 1, one, d, &err);
    CHECK(!ok && err.code == LQ_E_LIMIT && !lq_writer_commit(w, NULL, NULL, &err) && !exists(out),
          "a header without room: %s", err.text);
    lq_writer_close(w, true);

    // Names that take more in the header than they are long: the room that was asked for is enough.
    static const char *const chars[] = {"\"", "\\", "\xc2\x80", "\xe2\x80\xae", "\xf0\x9f\x98\x80"};
    ok = true;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) ok = lq_writer_open(&o, &w, &err);
        for (int i = 0; i < 50 && ok; i++) {
            const char *c = chars[i % 5];
            size_t n = (size_t)snprintf(longname, sizeof longname, "%d", i), m = strlen(c);
            while (n + m < LQ_NAME) memcpy(longname + n, c, m + 1), n += m;
            if (pass) ok = lq_writer_add(w, longname, LQ_U8, 1, one, d, &err);
            else o.header_room += lq_writer_entry_room(longname);
        }
    }
    CHECK(ok && lq_writer_commit(w, NULL, NULL, &err), "%s", err.text);
    lq_writer_close(w, !ok);
    unlink(out);

    CHECK(blob_write(out, "old", 3), "old");
    CHECK(!make_lq(out, false, false, &err) && err_good(&err, out) && !exists(partial), "%s", err.text);
    CHECK(make_open(out, false, true, &w, &err) && make_block(w, 0, &err), "%s", err.text);
    lq_writer_close(w, false);
    blob b = blob_read(out);
    CHECK(b.n == 3 && exists(partial), "the old file stays until the commit");
    free(b.p);
    CHECK(make_lq(out, true, true, &err) && !exists(partial), "%s", err.text);
    b = blob_read(out);
    CHECK(b.n > 3, "overwritten");
    free(b.p);
    unlink(out);
}

// --- the caller's own check ---

typedef struct asked { bool answer, whole; int calls; } asked;

static bool commit_asks(void *arg, const char *data, lq_err *err) {
    asked *a = arg;
    lq_ckpt *c = NULL;
    blob old = blob_read(out);
    a->whole = lq_ckpt_open(data, &c, err) && lq_ckpt_find(c, "model.layers.3.norm") && old.n == 3;
    a->calls++;
    lq_ckpt_close(c);
    free(old.p);
    return a->answer || lq_fail(err, LQ_E_FORMAT, "%s: not what was wanted", data);
}

// It sees the whole file while OUT is still the old one; its no leaves both, and the work can go on from there.
static void test_commit_check(blob want) {
    lq_err err = {0};
    lq_writer *w = NULL;
    asked a = {0};
    CHECK(blob_write(out, "old", 3), "old");
    for (int round = 0; round < 2; round++) {
        bool ok = make_open(out, true, true, &w, &err);
        CHECK(ok && lq_writer_resumed(w) == (round ? MAKE_BLOCKS : 0), "%s", err.text);
        for (int i = round ? MAKE_BLOCKS : 0; i < MAKE_BLOCKS && ok; i++) ok = make_block(w, i, &err);
        a.answer = round;
        bool done = ok && lq_writer_commit(w, commit_asks, &a, &err);
        lq_writer_close(w, false);
        CHECK(done == a.answer && a.whole && a.calls == round + 1, "round %d: %s", round, err.text);
        blob b = blob_read(out);
        CHECK(round ? same_bytes(b, want) : b.n == 3, "OUT after round %d", round);
        CHECK(exists(partial) == !round, "OUT.partial after round %d", round);
        free(b.p);
    }
    unlink(out);
}

// --- resume ---

// The partial directory of a run that ended after `blocks` blocks.
static void partial_make(int blocks) {
    lq_err err = {0};
    lq_writer *w = NULL;
    bool ok = make_open(out, false, false, &w, &err);
    for (int i = 0; i < blocks && ok; i++) ok = make_block(w, i, &err);
    // More of a block that is never ended.
    ok = ok && lq_writer_add(w, "torn", LQ_U8, 1, (int64_t[]){5}, "torn.", &err);
    CHECK(ok, "%s", err.text);
    lq_writer_close(w, false);
}

static bool resume_equals(blob want, size_t *resumed) {
    lq_err err = {0};
    lq_writer *w = NULL;
    bool ok = make_open(out, true, false, &w, &err);
    *resumed = ok ? lq_writer_resumed(w) : 0;
    for (size_t i = 0; i < *resumed && ok; i++) {
        char note[32];
        snprintf(note, sizeof note, "block %zu", i);
        ok = lq_writer_note(w, i) && !strcmp(lq_writer_note(w, i), note);
    }
    ok = ok && !lq_writer_note(w, *resumed);
    for (int i = (int)*resumed; i < MAKE_BLOCKS && ok; i++) ok = make_block(w, i, &err);
    ok = ok && lq_writer_commit(w, NULL, NULL, &err);
    lq_writer_close(w, false);
    blob b = blob_read(out);
    bool same = ok && same_bytes(b, want) && !exists(partial);
    if (!same) printf("resume: %s\n", err.text);
    free(b.p);
    unlink(out);
    return same;
}

static void partial_put(blob journal, size_t n, blob data, size_t m) {
    char path[160];
    mkdir(partial, 0777);
    snprintf(path, sizeof path, "%s/journal", partial);
    blob_write(path, journal.p, n);
    snprintf(path, sizeof path, "%s/data", partial);
    blob_write(path, data.p, m);
}

// Finished blocks that may be another's stay as they are.
static bool resume_refused(blob journal) {
    lq_err err = {0};
    lq_writer *w = NULL;
    char path[160];
    bool opened = make_open(out, true, false, &w, &err);
    lq_writer_close(w, false);
    snprintf(path, sizeof path, "%s/journal", partial);
    blob after = blob_read(path);
    bool ok = !opened && err_good(&err, partial) && strstr(err.text, "--fresh") && same_bytes(journal, after);
    free(after.p);
    tree_remove(partial);
    return ok;
}

static void test_resume(blob want) {
    char path[160];
    partial_make(3);
    CHECK(!exists(out), "nothing under the name yet");
    snprintf(path, sizeof path, "%s/journal", partial);
    blob journal = blob_read(path);
    snprintf(path, sizeof path, "%s/data", partial);
    blob data = blob_read(path);
    size_t seen[MAKE_BLOCKS + 1] = {0}, resumed;
    int bad = 0;
    for (size_t cut = 0; cut <= journal.n; cut++) {
        partial_put(journal, cut, data, data.n);
        bad += !resume_equals(want, &resumed);
        seen[resumed]++;
    }
    CHECK(!bad, "%d of %zu cuts of the journal resume wrongly", bad, journal.n);
    CHECK(seen[0] && seen[1] && seen[2] && seen[3] && !seen[4], "cuts resumed %zu %zu %zu %zu", seen[0], seen[1],
          seen[2], seen[3]);
    const size_t head = (size_t)((uint8_t *)memchr(journal.p, '\n', journal.n) - journal.p) + 1;
    for (size_t i = 0; i < journal.n; i += 3) {
        journal.p[i] ^= (uint8_t)(1 << i % 8);
        partial_put(journal, journal.n, data, data.n);
        bad += i < head ? !resume_refused(journal) : !resume_equals(want, &resumed);
        journal.p[i] ^= (uint8_t)(1 << i % 8);
    }
    CHECK(!bad, "%d damaged journals resume wrongly", bad);
    for (size_t m = 0; m < data.n; m += data.n / 40) {
        partial_put(journal, journal.n, data, m);
        bad += !resume_equals(want, &resumed);
        data.p[m] ^= 1; // the header's room does not count, data does
        partial_put(journal, journal.n, data, data.n);
        data.p[m] ^= 1;
        bad += !resume_equals(want, &resumed);
    }
    CHECK(!bad, "%d cut or damaged data files resume wrongly", bad);
    free(journal.p);
    free(data.p);
}

// Adds everything again after a resume: what the journal holds is skipped, what differs is refused.
static void test_resume_again(blob want) {
    lq_err err = {0};
    lq_writer *w = NULL;
    partial_make(2);
    CHECK(make_open(out, true, false, &w, &err) && lq_writer_resumed(w) == 2, "%s", err.text);
    CHECK(!lq_writer_add(w, "model.layers.0.norm", LQ_F32, 1, (int64_t[]){34}, want.p, &err) && err_good(&err, out),
          "%s", err.text);
    bool ok = true;
    for (int i = 0; i < MAKE_BLOCKS && ok; i++) ok = make_block(w, i, &err);
    CHECK(ok && lq_writer_commit(w, NULL, NULL, &err), "%s", err.text);
    lq_writer_close(w, false);
    blob b = blob_read(out);
    CHECK(same_bytes(b, want), "the same bytes");
    free(b.p);
    unlink(out);

    partial_make(2);
    lq_writer_opts o = {.out = out, .fingerprint = "other", .header_room = make_room(), .resume = true};
    for (int i = 0; i < 2; i++) {
        CHECK(!lq_writer_open(&o, &w, &err) && err_good(&err, partial) && strstr(err.text, "--fresh"),
              "another work: %s", err.text);
        CHECK(make_open(out, true, false, &w, &err) && lq_writer_resumed(w) == 2, "it was left as it was: %s",
              err.text);
        lq_writer_close(w, false);
        o.fingerprint = "in=1\nrecipe=2", o.header_room += 4096; // another room for the header is another work too
    }
    o.resume = false;
    CHECK(lq_writer_open(&o, &w, &err) && lq_writer_resumed(w) == 0, "afresh: %s", err.text);
    lq_writer_close(w, true);
    // Of one recipe and another state of the input: what was made of the old one goes, and that is told.
    for (int i = 0; i < 3; i++) {
        static const char *const prints[] = {"r1.old", "r1.new", "r2.new"};
        o = (lq_writer_opts){.out = out, .fingerprint = prints[i], .header_room = make_room(), .resume = true};
        const bool opened = lq_writer_open(&o, &w, &err);
        CHECK(opened == (i < 2), "%s: %s", prints[i], err.text);
        if (!opened) continue;
        CHECK(lq_writer_resumed(w) == 0 && lq_writer_outdated(w) == (i == 1), "%s", prints[i]);
        CHECK(make_block(w, 0, &err), "%s", err.text);
        lq_writer_close(w, false);
    }
    tree_remove(partial);
    o = (lq_writer_opts){.out = out, .fingerprint = "other", .header_room = make_room()};
    partial_make(0);
    o.resume = true;
    CHECK(lq_writer_open(&o, &w, &err), "nothing was finished, nothing is lost: %s", err.text);
    lq_writer_close(w, true);
}

// --- reading back ---

static void check_back(lq_writer *w, const char *name, const lq_weight *want) {
    lq_weight got;
    lq_err err = {0};
    bool ok = lq_writer_weight_back(w, name, 0, &got, &err);
    CHECK(ok, "%s", err.text);
    if (!ok) return;
    bool same = lq_wtype_equal(&got.type, &want->type) && got.n == want->n && got.k == want->k &&
                got.outliers == want->outliers && !got.perm == !want->perm && !got.smooth == !want->smooth &&
                (uintptr_t)got.q % 64 == 0;
    float x[MAKE_K], y[MAKE_K];
    for (int64_t r = 0; r < want->n && same; r++) {
        lq_weight_row_any(&got, r, x);
        lq_weight_row_any(want, r, y);
        same = !memcmp(x, y, sizeof x);
    }
    CHECK(same, "%s comes back as it was written", name);
}

// Each weight right after it was written and all of them at the end, in the run that wrote them and after a resume.
static void test_back(void) {
    static make_buffers b;
    lq_err err = {0};
    lq_writer *w = NULL;
    lq_weight got, first = {0};
    char name[64];
    static const int64_t huge[] = {1 << 20};
    uint8_t *zeros = calloc((size_t)*huge, 1);
    for (int run = 0; run < 2; run++) {
        CHECK(make_open(out, run, false, &w, &err) && lq_writer_resumed(w) == (run ? MAKE_BLOCKS : 0), "%s", err.text);
        for (int i = 0; i < MAKE_BLOCKS && !run; i++) {
            snprintf(name, sizeof name, "model.layers.%d.w0", i);
            CHECK(!lq_writer_weight_back(w, name, 0, &got, &err) && err_good(&err, name), "not yet: %s", err.text);
            CHECK(make_block(w, i, &err), "%s", err.text);
            lq_weight want = make_weight(2 * i % MAKE_FEATURES, &b);
            check_back(w, name, &want);
            if (i == 0) CHECK(lq_writer_weight_back(w, name, 0, &first, &err), "%s", err.text);
            snprintf(name, sizeof name, "zeros.%d", i);
            CHECK(lq_writer_add(w, name, LQ_U8, 1, huge, zeros, &err), "%s", err.text);
        }
        for (int i = 0; i < 2 * MAKE_BLOCKS; i++) {
            lq_weight want = make_weight(i % MAKE_FEATURES, &b);
            snprintf(name, sizeof name, "model.layers.%d.w%d", i / 2, i % 2);
            check_back(w, name, &want);
            if (i == 0 && !run) CHECK(first.q && !memcmp(first.q, want.q, MAKE_N * MAKE_K / 2),
                                      "what was read back first is still there");
        }
        bool ok = lq_writer_weight_back(w, "model.layers.3.norm", 0, &got, &err);
        CHECK(ok && got.n == 33 && got.k == 1 && ((const float *)got.q)[32] == 35, "a vector: %s", err.text);
        CHECK(!lq_writer_weight_back(w, "zeros.0", 0, &got, &err) && err_good(&err, "zeros.0"),
              "bytes are no weight: %s", err.text);
        CHECK(!lq_writer_weight_back(w, "model.layers.0.w0.q", 0, &got, &err), "a part is no weight");
        lq_writer_close(w, run);
    }
    free(zeros);
}

// --- what somebody else put there ---

static const char *const links[] = {"journal", "data"};

static bool victim_whole(void) {
    blob b = blob_read(at("victim"));
    bool ok = b.n == 8 && !memcmp(b.p, "precious", 8);
    free(b.p);
    return ok;
}

static void test_links(void) {
    lq_err err;
    lq_writer *w = NULL;
    char path[160];
    CHECK(blob_write(at("victim"), "precious", 8), "victim");
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%s", partial, links[i % 2]);
        mkdir(partial, 0777);
        int made = i < 2 ? symlink("../victim", path) : i < 4 ? link(at("victim"), path) : mkfifo(path, 0666);
        CHECK(!made && !make_open(out, true, false, &w, &err) && err_good(&err, path), "%s %d: %s", links[i % 2], i,
              err.text);
        CHECK(victim_whole(), "%s", path);
        CHECK(make_lq(out, false, true, &err) && victim_whole(), "afresh: %s", err.text);
        unlink(out);
    }
    CHECK(!mkdir(at("elsewhere"), 0777) && !symlink("elsewhere", partial), "link");
    for (int i = 0; i < 2; i++) {
        CHECK(!make_open(out, i, false, &w, &err) && err_good(&err, partial) && strstr(err.text, "link"), "a link: %s",
              err.text);
        CHECK(!rmdir(at("elsewhere")) && !mkdir(at("elsewhere"), 0777), "nothing was put into it");
    }
    unlink(partial);
    CHECK(blob_write(partial, "x", 1) && !make_open(out, false, false, &w, &err) && err_good(&err, partial),
          "a file: %s", err.text);
    unlink(partial);
    // Another file under the name of the data is not what gets OUT's name.
    bool ok = make_open(out, false, false, &w, &err);
    for (int i = 0; i < MAKE_BLOCKS && ok; i++) ok = make_block(w, i, &err);
    snprintf(path, sizeof path, "%s/data", partial);
    blob b = {0};
    ok = ok && !rename(path, at("moved")) && (b = blob_read(at("moved"))).p && blob_write(path, b.p, b.n);
    CHECK(ok && !lq_writer_commit(w, NULL, NULL, &err) && !exists(out), "%s", err.text);
    free(b.p);
    lq_writer_close(w, true);
    tree_remove(partial);
    unlink(at("moved")), unlink(at("victim")), rmdir(at("elsewhere"));
}

// --- what the system refuses ---

// flock gives `error` in this process from now on.
static bool locks_fail(int error) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

// In a process of its own: 0 if what is expected came, 2 if it cannot be tried here.
static int limited(int what) {
    lq_err err = {0};
    if (what == 0) {
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){8192, 8192})) return 2;
        return make_lq(out, false, false, &err) || !strstr(err.text, "File too large") || !strstr(err.text, "ulimit") ||
               !err_good(&err, out);
    }
    int error = what == 1 ? ENOLCK : what == 2 ? ENOSYS : EOPNOTSUPP;
    if (!locks_fail(error)) return 2;
    bool ok = make_lq(out, false, true, &err);
    return what == 1 ? ok || strstr(err.text, "another process") || !strstr(err.text, "locked") ||
           !err_good(&err, out) : !ok;
}

static void test_limits(void) {
    for (int what = 0; what < 4; what++) {
        pid_t pid = fork();
        if (pid == 0) _exit(limited(what));
        int status;
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 2) SKIP("the system does not let limit %d be set", what);
        else CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "limit %d: %d", what, status);
        tree_remove(partial);
    }
    unlink(out);
}

// --- kills ---

static void child_work(void) {
    lq_err err;
    lq_writer *w = NULL;
    if (!make_open(out, true, true, &w, &err)) _exit(3);
    for (int i = (int)lq_writer_resumed(w); i < MAKE_BLOCKS; i++)
        if (!make_block(w, i, &err)) _exit(4);
    if (!lq_writer_commit(w, NULL, NULL, &err)) _exit(5);
    _exit(0);
}

// Kills at random moments until `hits` of them hit the work; `old`: a file that stood under the name before. The
// moments follow the speed of the machine. Returns the number of runs.
static int kill_rounds(blob want, blob old, int hits, uint64_t seed, double spread_us) {
    int rounds = 0, wrong = 0, odd = 0;
    for (int hit = 0; hit < hits; rounds++) {
        if (old.p) blob_write(out, old.p, old.n);
        pid_t pid = fork();
        if (pid == 0) child_work();
        long us = (long)(next_random(&seed) % (uint64_t)spread_us);
        nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        hit += WIFSIGNALED(status);
        odd += WIFEXITED(status) && WEXITSTATUS(status) != 0;
        blob b = blob_read(out);
        bool whole = same_bytes(b, want), before = old.p ? same_bytes(b, old) : !b.p;
        wrong += !whole && !before;
        free(b.p);
        spread_us *= whole ? 0.96 : 1.05;
        if (spread_us < 200) spread_us = 200;
        if (whole) unlink(out);
    }
    CHECK(!wrong, "%d kills left something else under the name", wrong);
    CHECK(!odd, "%d runs failed", odd);
    return rounds;
}

static void test_kills(blob want) {
    struct timespec a, b;
    lq_err err = {0};
    clock_gettime(CLOCK_MONOTONIC, &a);
    CHECK(make_lq(out, false, false, &err), "%s", err.text);
    clock_gettime(CLOCK_MONOTONIC, &b);
    unlink(out);
    double spread = ((double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) / 1e3) * 2;
    int rounds = kill_rounds(want, (blob){0}, 100, 42, spread);
    tree_remove(partial);
    unlink(out);
    rounds += kill_rounds(want, (blob){(uint8_t *)(char[]){"old"}, 3}, 60, 4711, spread);
    printf("160 kills hit the work in %d runs\n", rounds);
    CHECK(make_lq(out, true, true, &err), "%s", err.text);
    blob end = blob_read(out);
    CHECK(same_bytes(end, want), "after all kills the same bytes");
    free(end.p);
    unlink(out);
}

int main(void) {
    // In memory where that is: hundreds of small files are synced here.
    snprintf(folder, sizeof folder, "%s/lq_writer_XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder)) return 1;
    snprintf(out, sizeof out, "%s/m.lq", folder);
    snprintf(partial, sizeof partial, "%s.partial", out);
    test_read_back();
    test_layout();
    test_weights_refused();
    test_room();
    test_large();
    test_plain();
    test_refusals();
    blob want = reference();
    test_commit_check(want);
    test_resume(want);
    test_resume_again(want);
    test_back();
    test_links();
    test_limits();
    test_kills(want);
    free(want.p);
    tree_remove(folder);
    return test_end();
}
