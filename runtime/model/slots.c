// slots.c: the list of weights that a description needs: names, shapes, where other people's files have them, what they
// read; and all names that belong to a model, sorted once. Owns the lists it returns.
#include "runtime/model/part.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const lq_part_row lq_parts[LQ_PART_KINDS] = {
    [LQ_P_ATTN] = {lq_attn_slots, lq_attn_room, lq_attn_held, lq_attn_reader, lq_attn_run, lq_attn_keep},
    [LQ_P_MLA] = {lq_mla_slots, lq_mla_room, lq_mla_held, lq_mla_reader, lq_mla_run, lq_mla_keep},
    [LQ_P_MLP] = {lq_mlp_slots, lq_mlp_room, lq_mlp_held, lq_mlp_reader, lq_mlp_run, NULL},
    [LQ_P_MOE] = {lq_moe_slots, lq_moe_room, lq_moe_held, lq_moe_reader, lq_moe_run, NULL},
    [LQ_P_TOKEN] = {lq_token_slots, lq_token_room, lq_token_held, lq_token_reader, lq_token_run, NULL},
};

// --- listing ---

// A pattern with the layer put in. With `stack` the expert's "%d." is left out, else it stays as it is.
static bool name_of(const lq_slots *s, const char *pattern, bool stack, const char *suffix, char *out, size_t size) {
    const char *mark = strstr(pattern, "%d");
    if (strchr(pattern, '=')) suffix = "";
    int n = mark ? snprintf(out, size, "%.*s%d%s%s", (int)(mark - pattern), pattern, s->layer, mark + 2, suffix)
                 : snprintf(out, size, "%s%s", pattern, suffix);
    if (n < 0 || (size_t)n >= size) return false;
    out[strcspn(out, "=")] = 0;
    char *expert = stack ? strstr(out, "%d.") : NULL;
    if (expert) memmove(expert, expert + 3, strlen(expert + 3) + 1);
    return true;
}

// A name with an index in place of its "%d".
static bool indexed(const char *pattern, int at, char *out, size_t size) {
    const char *mark = strstr(pattern, "%d");
    const int n = mark ? snprintf(out, size, "%.*s%d%s", (int)(mark - pattern), pattern, at, mark + 2) : -1;
    return n > 0 && (size_t)n < size;
}

// What lq's own files call a role.
static const char *pattern_of(const lq_desc *d, lq_role role) {
    return role == LQ_R_KV_SCALE ? "lq.kv_scale.%d=" : d->names[role];
}

// What other people's files call it.
static const char *source_of(const lq_desc *d, lq_role role) {
    const char *name = d->sources && d->sources[role] ? d->sources[role] : pattern_of(d, role);
    return strncmp(name, d->names[LQ_R_EMBED], (size_t)d->bare) ? name : name + d->bare;
}

// The name that other people's files have for what ours call `name`.
static bool wrap(const lq_desc *d, char *name, size_t size) {
    if (!d->body) return true;
    const bool inner = !strncmp(name, "model.", 6);
    const char *by = inner ? d->body : d->outer;
    const size_t n = strlen(by), rest = strlen(name + 6 * inner) + 1;
    if (n + rest > size) return false;
    memmove(name + n, name + 6 * inner, rest);
    memcpy(name, by, n);
    return true;
}

bool lq_desc_source(const lq_desc *d, lq_role role, char *out, size_t size) {
    const lq_slots s = {.d = d, .layer = -1};
    return d->names[role] && name_of(&s, source_of(d, role), false, ".weight", out, size) && wrap(d, out, size);
}

static void put(lq_slots *s, lq_slot slot, const lq_rows_of *from) {
    if (s->n == s->cap) {
        const int cap = s->cap ? 2 * s->cap : 32;
        lq_slot *more = realloc(s->slot, (size_t)cap * sizeof *more);
        if (!more) s->failed = true;
        if (!more) return;
        s->slot = more;
        s->cap = cap;
    }
    const char *suffix = slot.bias ? ".bias" : ".weight";
    lq_slot *o = &s->slot[s->n++];
    *o = slot;
    o->layer = s->layer;
    o->quantizable = o->k > 0 && !o->flat && o->role != LQ_R_POSITION;
    if (from) o->from = (lq_pick){.first = from->first, .run = from->run, .step = from->step};
    o->from.across = s->d->across && s->layer >= 0 && o->k > 0;
    if (!name_of(s, pattern_of(s->d, o->role), o->count > 0, suffix, o->name, sizeof o->name) ||
        !name_of(s, source_of(s->d, from ? from->whole : o->role), false, suffix, o->from.name, sizeof o->from.name) ||
        !wrap(s->d, o->from.name, sizeof o->from.name))
        s->failed = true;
}

void lq_slots_norm(lq_slots *s, lq_role role, int64_t n, bool bias) {
    if (s->d->norm_bare) return;
    put(s, (lq_slot){.role = role, .input = -1, .n = n}, NULL);
    if (bias) put(s, (lq_slot){.role = role, .input = -1, .n = n, .bias = true}, NULL);
}

void lq_slots_vector(lq_slots *s, lq_role role, int64_t n) {
    put(s, (lq_slot){.role = role, .input = -1, .n = n}, NULL);
}

void lq_slots_head_norms(lq_slots *s, lq_role role, int heads, int64_t n) {
    const char *mark = strstr(s->d->names[role], "%d");
    const bool apart = mark && strstr(mark + 2, "%d");
    if (!apart) put(s, (lq_slot){.role = role, .input = -1, .n = heads, .k = n, .flat = true}, NULL);
    for (int i = 0; apart && i < heads; i++) {
        char name[sizeof s->slot->name];
        put(s, (lq_slot){.role = role, .input = -1, .n = n, .at = i * n, .of = heads * n}, NULL);
        if (s->failed) return;
        lq_slot *o = &s->slot[s->n - 1];
        s->failed = !indexed(o->name, i, name, sizeof name);
        memcpy(o->name, name, sizeof name);
        s->failed |= !indexed(o->from.name, i, name, sizeof name);
        memcpy(o->from.name, name, sizeof name);
    }
}

static void put_norm(lq_slots *s, lq_role role) { lq_slots_norm(s, role, s->d->dim, s->d->norm_bias); }

int lq_slots_input(lq_slots *s, lq_before before, lq_role by, int64_t k) {
    if (s->inputs == LQ_INPUTS) s->failed = true;
    else s->input[s->inputs++] = (lq_input){.before = before, .by = by, .k = k};
    return s->inputs - 1;
}

static void put_matrix(lq_slots *s, lq_slot slot, bool bias, const lq_rows_of *from) {
    put(s, slot, from);
    slot.k = 0;
    slot.bias = true;
    slot.input = -1;
    if (bias) put(s, slot, from);
}

void lq_slots_matrix(lq_slots *s, lq_role role, int input, int64_t n, int64_t k, bool bias) {
    put_matrix(s, (lq_slot){.role = role, .input = input, .n = n, .k = k}, bias, NULL);
}

void lq_slots_rows(lq_slots *s, lq_role role, int input, int64_t n, int64_t k, bool bias, lq_rows_of from) {
    put_matrix(s, (lq_slot){.role = role, .input = input, .n = n, .k = k}, bias, &from);
}

void lq_slots_stack(lq_slots *s, lq_role role, int input, int count, int64_t n, int64_t k, const lq_rows_of *from) {
    put_matrix(s, (lq_slot){.role = role, .input = input, .count = count, .n = n, .k = k}, false, from);
}

void lq_slots_biases(lq_slots *s, lq_role role, int count, int64_t n, const lq_rows_of *from) {
    put(s, (lq_slot){.role = role, .input = -1, .count = count, .n = n, .bias = true}, from);
}

void lq_slots_across(lq_slots *s) {
    if (s->n) s->slot[s->n - 1].from.across = true;
}

void lq_slots_each(lq_slots *s, int64_t each) {
    if (s->n) s->slot[s->n - 1].from.each = each;
}

void lq_slots_first(lq_slots *s, lq_role role, int64_t n, int64_t of) {
    const lq_rows_of first = {role, 0, 1, 1};
    put(s, (lq_slot){.role = role, .input = -1, .n = 1, .k = n, .flat = true}, of > 1 ? &first : NULL);
}

void lq_slots_adds(lq_slots *s) {
    const lq_role role = s->n ? s->slot[s->n - 1].role : LQ_ROLES;
    for (int i = s->n; i-- > 0 && s->slot[i].role == role;) s->slot[i].adds = true;
}

static void list_model(lq_slots *s) {
    const lq_desc *d = s->d;
    const int64_t width = d->embed_dim ? d->embed_dim : d->dim;
    const bool normed = !d->norm_bare && !d->head_raw;
    const bool takes = normed && !d->head_unit; // factors, which would change the lengths of its rows
    if (d->embed_dim)
        lq_slots_matrix(s, LQ_R_PROJECT_IN, lq_slots_input(s, LQ_B_NONE, LQ_R_EMBED, width), d->dim, width, false);
    int x = lq_slots_input(s, takes ? LQ_B_NORM : LQ_B_NONE, LQ_R_NORM_OUT, d->dim);
    if (d->embed_dim) {
        lq_slots_matrix(s, LQ_R_PROJECT_OUT, x, width, d->dim, false);
        x = lq_slots_input(s, LQ_B_ROWS, LQ_R_PROJECT_OUT, width);
    }
    lq_slots_matrix(s, LQ_R_EMBED, d->tied ? x : -1, d->vocab, width, false);
    if (d->positions)
        lq_slots_rows(s, LQ_R_POSITION, -1, d->positions, d->dim, false,
                      (lq_rows_of){.whole = LQ_R_POSITION, .first = d->position_first});
    if (d->embed_norm) put_norm(s, LQ_R_NORM_EMBED);
    if (d->token_dim) {
        const int64_t all = (int64_t)d->layers * d->token_dim;
        lq_slots_matrix(s, LQ_R_TOKENS, -1, d->token_vocab, all, false);
        lq_slots_matrix(s, LQ_R_TOKENS_IN, lq_slots_input(s, LQ_B_NONE, LQ_R_EMBED, d->dim), all, d->dim, false);
        lq_slots_norm(s, LQ_R_NORM_TOKENS, d->token_dim, d->norm_bias);
    }
    if (normed) put_norm(s, LQ_R_NORM_OUT);
    if (!d->tied) lq_slots_matrix(s, LQ_R_HEAD, x, d->vocab, width, d->head_bias);
    else if (d->head_bias) put(s, (lq_slot){.role = LQ_R_HEAD, .input = -1, .n = d->vocab, .bias = true}, NULL);
}

static void list_layer(lq_slots *s, const lq_layer *l) {
    for (int i = 0; i < l->parts; i++) {
        const lq_part *p = &l->part[i];
        const bool pre = p->place & LQ_PRE;
        if (!p->beside || p->own_norm) {
            if (pre) put_norm(s, LQ_R_NORM_0 + (lq_role)i);
            s->x = lq_slots_input(s, pre && !s->d->norm_bare ? LQ_B_NORM : LQ_B_NONE, LQ_R_NORM_0 + (lq_role)i,
                                  s->d->dim);
        }
        lq_parts[p->kind].slots(s, p);
        if (s->d->kv_scaled && p == lq_layer_attn(l) && l->kv_from == s->layer)
            lq_slots_vector(s, LQ_R_KV_SCALE, 2 * (int64_t)p->kv_heads);
        if (p->place & (LQ_POST | LQ_OVER | LQ_SUM)) put_norm(s, LQ_R_NORM_POST_0 + (lq_role)i);
    }
    if (s->d->layer_scaled) lq_slots_vector(s, LQ_R_LAYER_SCALE, 1);
}

static bool list(const lq_desc *d, int layer, lq_slots *s) {
    *s = (lq_slots){.d = d, .layer = layer};
    if (layer < 0) list_model(s);
    else list_layer(s, &d->layer[layer]);
    if (!s->failed) return true;
    free(s->slot);
    s->slot = NULL;
    return false;
}

lq_slot *lq_desc_slots(const lq_desc *d, int layer, int *count) {
    lq_slots s;
    list(d, layer, &s);
    *count = s.n;
    return s.slot;
}

int lq_desc_inputs(const lq_desc *d, int layer, lq_input *out) {
    lq_slots s;
    if (!list(d, layer, &s)) return 0;
    memcpy(out, s.input, (size_t)s.inputs * sizeof *out);
    free(s.slot);
    return s.inputs;
}

bool lq_slot_pick(const lq_slot *s, int at, lq_pick *out) {
    *out = s->from;
    if (!s->count) return true;
    if (strstr(s->from.name, "%d")) return indexed(s->from.name, at, out->name, sizeof out->name);
    out->stack = s->count, out->at = at;
    return true;
}

const lq_part *lq_layer_attn(const lq_layer *l) {
    for (int i = 0; i < l->parts; i++)
        if (l->part[i].kind == LQ_P_ATTN || l->part[i].kind == LQ_P_MLA) return &l->part[i];
    return NULL;
}

// --- names that belong ---

typedef struct list_of { // of names, sorted once it is whole
    char *text;      // all of them, each with its end
    size_t bytes, cap;
    size_t *at;      // [count] offsets into text
    const char **name; // [count]
    size_t count, room;
} list_of;
struct lq_names {
    const lq_desc *d;
    const lq_ckpt *c;
    list_of known, kept;
};

static bool name_add(list_of *n, const char *name, size_t len) {
    while (n->cap - n->bytes <= len)
        if (!lq_grow((void **)&n->text, n->cap, &n->cap, 1)) return false;
    if (!lq_grow((void **)&n->at, n->count, &n->room, sizeof *n->at)) return false;
    memcpy(n->text + n->bytes, name, len);
    n->text[n->bytes + len] = 0;
    n->at[n->count++] = n->bytes;
    n->bytes += len + 1;
    return true;
}

static int by_text(const void *x, const void *y) { return strcmp(*(const char *const *)x, *(const char *const *)y); }
static bool list_sort(list_of *n) {
    n->name = malloc((n->count + 1) * sizeof *n->name);
    if (!n->name) return false;
    for (size_t i = 0; i < n->count; i++) n->name[i] = n->text + n->at[i];
    qsort(n->name, n->count, sizeof *n->name, by_text);
    return true;
}

static bool listed(const list_of *n, const char *name) {
    return bsearch(&name, n->name, n->count, sizeof *n->name, by_text);
}

static void list_free(list_of *n) {
    free(n->text);
    free(n->at);
    free(n->name);
}

// A stack that is there under lq's name, or lies in one tensor, has no other names.
static bool slot_add(list_of *n, const lq_slot *s, const lq_ckpt *c) {
    lq_pick pick;
    bool done = name_add(n, s->name, strlen(s->name));
    int names = 1;
    if (s->count && lq_ckpt_has_weight(c, s->name)) names = 0;
    else if (s->count && strstr(s->from.name, "%d")) names = s->count;
    for (int i = 0; done && i < names; i++)
        done = lq_slot_pick(s, i, &pick) && name_add(n, pick.name, strlen(pick.name));
    return done;
}

// No more names than so many tensors can have: several slots may have their rows of one, and a slot has two names.
static bool slots_add(list_of *n, const lq_desc *d, const lq_ckpt *c, lq_err *err) {
    const size_t most = 8 * lq_ckpt_count(c) + 65536;
    bool done = true;
    for (int l = -1; done && l < d->layers && n->count <= most; l++) {
        int count;
        lq_slot *slots = lq_desc_slots(d, l, &count);
        done = slots;
        for (int i = 0; done && i < count; i++) done = slot_add(n, &slots[i], c);
        free(slots);
    }
    if (!done) return lq_fail(err, LQ_E_MEMORY, "no memory for the names of %d layers", d->layers);
    return n->count <= most || lq_fail(err, LQ_E_FORMAT, "%zu tensors are too few for the %d layers of config.json",
                                       lq_ckpt_count(c), d->layers);
}

// The names in metadata lq.kept.
static bool kept_add(list_of *n, const char *text, lq_err *err) {
    const lq_json_limits limits = {100 * 1000 * 1000, 1};
    if (!text) return true;
    if (!lq_json_check(text, strlen(text), limits, "metadata lq.kept", err)) return false;
    lq_json_walk w = {text, text + strlen(text)};
    if (lq_json_next(&w) != '[') return lq_fail(err, LQ_E_FORMAT, "metadata lq.kept is not an array of names");
    char *name = malloc(strlen(text) + 1);
    bool done = name;
    for (lq_json_take(&w); done && lq_json_next(&w) == '"';) done = name_add(n, name, lq_json_take_str(&w, name));
    free(name);
    if (!done) return lq_fail(err, LQ_E_MEMORY, "no memory for the names in metadata lq.kept");
    return lq_json_next(&w) == ']' || lq_fail(err, LQ_E_FORMAT, "metadata lq.kept is not an array of names");
}

bool lq_names_open(const lq_desc *d, const lq_ckpt *c, lq_names **out, lq_err *err) {
    lq_names *n = calloc(1, sizeof *n);
    *out = NULL;
    if (!n) return lq_fail(err, LQ_E_MEMORY, "no memory for the names of %d layers", d->layers);
    *n = (lq_names){.d = d, .c = c};
    if (!kept_add(&n->kept, lq_ckpt_meta(c, "lq.kept"), err) || !slots_add(&n->known, d, c, err)) {
        lq_names_close(n);
        return false;
    }
    if (!list_sort(&n->known) || !list_sort(&n->kept)) {
        lq_names_close(n);
        return lq_fail(err, LQ_E_MEMORY, "no memory for the names of %d layers", d->layers);
    }
    *out = n;
    return true;
}

void lq_names_close(lq_names *n) {
    if (!n) return;
    list_free(&n->known);
    list_free(&n->kept);
    free(n);
}

// Whether a text is a pattern with each * replaced by something.
static bool matches(const char *pattern, const char *text) {
    const char *star = NULL, *again = NULL;
    while (*text) {
        if (*pattern == '*') star = pattern++, again = text;
        else if (*pattern == *text) pattern++, text++;
        else if (star) pattern = star + 1, text = ++again;
        else return false;
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

// Whether it is of a layer behind the last, which guesses further tokens.
static bool guesses(const lq_desc *d, const char *name) {
    static const char layers[] = "layers.";
    const char *body = d->body ? d->body : "model.";
    const size_t n = strlen(body);
    char *end;
    if (!d->guesses || strncmp(name, body, n) != 0 || strncmp(name + n, layers, sizeof layers - 1) != 0) return false;
    const long at = strtol(name + n + sizeof layers - 1, &end, 10);
    return *end == '.' && at >= d->layers && at < d->layers + d->guesses;
}

// Whether an architecture has a tensor for nothing, or (part) for another part of the model than its text.
static bool ignored(const lq_desc *d, const char *name, bool part) {
    for (const char *const *p = d->arch->ignores; p && *p; p++)
        if ((**p == '+') == part && matches(*p + part, name)) return true;
    return false;
}

// What exporters write beside the weights, of every architecture.
static bool harmless(const lq_desc *d, const char *name) {
    // All but the first are of others' caches in 8 bits; bind.c reads what K and V are divided by.
    static const char *const tails[] = {"*rotary_emb.inv_freq", "*.k_scale", "*.v_scale", "*.q_scale", "*.k_zero_point",
                                        "*.v_zero_point", "*.q_zero_point", "*.k_proj.output_scale",
                                        "*.v_proj.output_scale"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (matches(tails[i], name)) return true;
    if (guesses(d, name) || ignored(d, name, false)) return true;
    char head[LQ_NAME]; // one that is the embedding is written twice by some
    const size_t n = d->tied && lq_desc_source(d, LQ_R_HEAD, head, sizeof head) ? strlen(head) - strlen("weight") : 0;
    return n && !strncmp(name, head, n);
}

// Whether it is what others divide the activations by that meet a coded matrix: here those are rounded as ever.
static bool act_scale(const lq_ckpt *c, const char *name) {
    static const char *const tails[] = {".input_scale", ".input_global_scale"};
    char of[LQ_NAME];
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(name), k = strlen(tails[i]);
        if (!lq_name_ends(name, tails[i]) || n >= sizeof of) continue;
        snprintf(of, sizeof of, "%.*s.weight", (int)(n - k), name);
        if (lq_ckpt_typed(c, of)) return true;
    }
    return false;
}

// Whether a tensor is of another part of the model than its text.
static bool other(const lq_desc *d, const char *name) {
    return d->body && strncmp(name, d->body, strlen(d->body)) != 0 &&
           (!*d->outer || strncmp(name, d->outer, strlen(d->outer)) != 0) && strncmp(name, "lm_head.", 8) != 0;
}

bool lq_names_kept(const lq_names *n, const char *tensor) { return listed(&n->kept, tensor); }

lq_known lq_names_find(const lq_names *n, const char *tensor) {
    bool codes;
    if (listed(&n->known, tensor)) return LQ_KNOWN;
    // A part of a coded weight: nothing else may have such a name.
    const lq_typed *of = lq_ckpt_part_of(n->c, tensor, &codes);
    if (of && listed(&n->known, of->name)) return LQ_KNOWN;
    if (of) tensor = of->name;
    if (harmless(n->d, tensor) || act_scale(n->c, tensor) || listed(&n->kept, tensor)) return LQ_HARMLESS;
    return other(n->d, tensor) || ignored(n->d, tensor, true) ? LQ_OTHER : LQ_STRANGE;
}
