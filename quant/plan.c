// plan.c: what a run of the pass will do, known before any of it is done: which tensors become what, in which order,
// how much memory and disk that takes, and the fingerprint of everything that decides the output's bytes. Owns the
// lists of an lq_plan.
//
// Refused: tensors that are missing, of another shape, or that nobody knows; transforms of codes that are to stay.
#include "formats/parts.h"
#include "formats/words.h"
#include "formats/writer.h"
#include "quant/prune.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <xxhash.h>

enum { KEPT = 32 << 20 }; // bytes that stand between layers in memory where nobody says how many may

// --- which tensors there are ---

const char *lq_item_name(const lq_item *it) { return it->slot.role == LQ_ROLES ? it->t->name : it->slot.name; }

static bool add_item(lq_plan *p, lq_item item, lq_err *err) {
    if ((p->count & (p->count - 1)) == 0) {
        lq_item *more = realloc(p->items, (p->count ? 2 * p->count : 1) * sizeof *more);
        if (!more) return lq_fail(err, LQ_E_MEMORY, "no memory for a plan of %zu tensors", p->count);
        p->items = more;
    }
    p->items[p->count++] = item;
    return true;
}

static bool fail_quantized(const lq_plan *p, const char *name, lq_err *err) {
    return lq_fail(err, LQ_E_USAGE, "%s: %s is quantized already; expected a checkpoint in bf16, f16, f32, or 8 bits "
                   "with scales, or a --type that it is to become", lq_ckpt_path(p->in), name);
}

// Whether it is one of ours with codes in it: what it has is what was wanted, unless something else is asked for.
static bool is_coded(const lq_plan *p) {
    bool coded = false, codes;
    if (strcmp(lq_ckpt_container(p->in), "lq") != 0) return false;
    for (size_t i = 0; !coded && i < lq_ckpt_count(p->in); i++)
        coded = lq_ckpt_part_of(p->in, lq_ckpt_at(p->in, i)->name, &codes);
    return coded;
}

const char *lq_type_asked(const lq_plan *p, const lq_slot *s, const char **option) {
    const lq_quant_opts *o = p->o;
    const bool table = s->role == LQ_R_EMBED || s->role == LQ_R_TOKENS;
    const bool head = s->role == LQ_R_HEAD || (s->role == LQ_R_EMBED && p->desc.tied && o->head);
    *option = head ? "head" : table ? "embed" : "type";
    return head ? o->head : table ? o->embed : o->type;
}

// The type of a matrix by its role; *keep: as it is.
static bool slot_type(const lq_plan *p, const lq_slot *s, lq_wtype *type, bool *keep, lq_err *err) {
    const lq_quant_opts *o = p->o;
    const bool table = s->role == LQ_R_EMBED || s->role == LQ_R_TOKENS;
    const char *option, *text = lq_type_asked(p, s, &option);
    if (s->role == LQ_R_EMBED && p->desc.tied && o->head && o->embed && strcmp(o->head, o->embed))
        return lq_fail(err, LQ_E_USAGE, "%s: its head is its embedding, which cannot be both %s and %s",
                       lq_ckpt_path(p->in), o->head, o->embed);
    *keep = !s->quantizable || (text && !strcmp(text, "keep"));
    *type = p->base.type;
    // What others left in 16 bits beside matrices that they packed they left so on purpose.
    if (!text && (p->coded || (lq_ckpt_packed(p->in) && !table && s->role != LQ_R_HEAD))) *keep = true;
    if (*keep) return true;
    if (!text && (table || s->role == LQ_R_HEAD)) text = "int8 row";
    if (text && !lq_wtype_parse(text, type, err)) return lq_fail_in(err, "%s", option);
    return true;
}

// Under the slot's own name, or where other people's files have it.
bool lq_source_pick(const lq_ckpt *in, const lq_slot *s, int at, lq_pick *out, lq_err *err) {
    if (!lq_ckpt_has_weight(in, s->name))
        return lq_slot_pick(s, at, out) ||
               lq_fail(err, LQ_E_LIMIT, "%s: tensor %s: its source's name is too long", lq_ckpt_path(in), s->name);
    *out = (lq_pick){.stack = s->count, .at = at};
    memcpy(out->name, s->name, sizeof out->name);
    return true;
}

static const lq_slot *source_of(const lq_item *it) { return it->source ? it->source : &it->slot; }

bool lq_item_pick(const lq_ckpt *in, const lq_item *it, int at, lq_pick *out, lq_err *err) {
    return lq_source_pick(in, source_of(it), at, out, err);
}

static void shape_words(const int64_t *shape, int rank, char *to, size_t size) {
    for (int i = 0, at = 0; i < rank; i++)
        at += snprintf(to + at, size - (size_t)at, i ? ", %" PRId64 : "%" PRId64, shape[i]);
}

// What a slot is picked from: a plain tensor, or a weight that others coded.
typedef struct found {
    const lq_tensor *t;
    const lq_typed *w;
} found;

// Whether it holds the slot, without reading any of it.
static bool source_check(const lq_plan *p, const lq_slot *s, const lq_pick *from, const found *f, lq_err *err) {
    int64_t want[3], rows = s->n, size = from->run ? from->run : s->n; // of the tensor; rows that it must have
    const lq_typed *w = f->w;
    const int64_t coded[3] = {w ? w->count : 0, w ? w->n : 0, w ? w->k : 0};
    const int64_t *shape = !w ? f->t->shape : w->count ? coded : coded + 1;
    const int ranks = !w ? f->t->rank : w->count ? 3 : 2;
    const bool across = from->across && s->k && !(w && w->upright && !from->each);
    int rank = 0;
    bool fits;
    if (from->each) rows = from->across ? s->n : from->stack * from->each;
    else if (from->run || from->first)
        rows = from->first + (s->n - 1) / size * (from->run ? from->step : 0) + (s->n - 1) % size + 1;
    if (from->stack && !from->each) want[rank++] = from->stack;
    want[rank++] = !across ? rows : from->each ? from->stack * from->each : s->k;
    if (s->k) want[rank++] = across ? rows : s->k;
    fits = ranks == rank || (!ranks && rank == 1 && rows == 1); // a number by itself is a vector of one
    // A range or runs of rows are part of something larger.
    const int row_at = (from->stack != 0) + across, part = !from->each && (from->run || from->first);
    for (int i = 0; fits && i < ranks; i++)
        fits = shape[i] == want[i] || (part && i == row_at && shape[i] > want[i]);
    if (fits) return true;
    char have[LQ_RANK * 24] = "", words[3 * 24] = "";
    shape_words(shape, ranks, have, sizeof have);
    shape_words(want, rank, words, sizeof words);
    return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s has the shape [%s], expected %s[%s]", lq_ckpt_path(p->in),
                   from->name, have, part ? "at least " : "", words);
}

// The source of a slot is there, of a type that is read, and shaped as it must be.
static bool find_source(const lq_plan *p, const lq_slot *s, const lq_pick *from, found *f, lq_err *err) {
    *f = (found){.w = s->k ? lq_ckpt_typed(p->in, from->name) : NULL};
    f->t = f->w ? NULL : lq_ckpt_find(p->in, from->name);
    const lq_tensor *t = f->t;
    if (!t && !f->w) return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s is missing", lq_ckpt_path(p->in), from->name);
    if (t && t->type != LQ_F32 && t->type != LQ_F16 && t->type != LQ_BF16)
        return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s is %s, expected bf16, f16, f32, or e4m3 or i8 with scales",
                       lq_ckpt_path(p->in), t->name, lq_dtypes[t->type].name);
    return source_check(p, s, from, f, err);
}

static bool alike(const found *a, const found *b) {
    return a->w && b->w ? lq_wtype_equal(&a->w->type, &b->w->type) : a->t && b->t && a->t->type == b->t->type;
}

// What a slot is made of is there: of a stack every matrix. *same: all of them are of the first one's type.
static bool find_sources(const lq_plan *p, const lq_slot *s, found *first, bool *same, lq_err *err) {
    *same = true, *first = (found){0};
    for (int i = 0; i < (s->count ? s->count : 1); i++) {
        lq_pick from;
        found f;
        if (!lq_source_pick(p->in, s, i, &from, err) || !find_source(p, s, &from, &f, err)) return false;
        if (!i) *first = f;
        *same &= alike(first, &f);
    }
    return true;
}

static lq_wtype plain_type(lq_dtype elem) {
    return (lq_wtype){.kind = LQ_W_PLAIN, .elem = elem, .bits = 8 * (int)lq_dtype_size(elem)};
}

// Whether what others coded stays as it is: where that is asked for, and, but for 8 bits beside their scales, where no
// type is. gpt-oss's experts, whose form is a model's own, always do.
static bool stays_coded(const lq_plan *p, const lq_slot *s, const lq_typed *w, bool keep) {
    const char *option, *asked = lq_type_asked(p, s, &option);
    return keep || (w->upright || p->coded ? !asked : !lq_ckpt_loose(p->in, w));
}

static bool add_coded(lq_plan *p, lq_item *item, const lq_typed *w, bool same, lq_err *err) {
    const lq_slot *s = &item->slot;
    for (int i = 0; i < LQ_TRANSFORMS; i++)
        if (item->recipe.transform >> i & 1 && lq_transforms[i].run) return fail_quantized(p, w->name, err);
    item->recipe.transform = 0; // so that no factor is sought of what it reads or makes
    if (!p->carried) p->first_carried = w->name;
    if (!same)
        return lq_fail(err, LQ_E_UNSUPPORTED, "%s: tensor %s: the matrices of %s are of several types; give them one "
                       "with --type", lq_ckpt_path(p->in), w->name, s->name);
    item->recipe.type = w->type;
    for (int i = 0; item->recipe.type.dq && i < (s->count ? s->count : 1); i++) {
        lq_pick from;
        if (!lq_source_pick(p->in, source_of(item), i, &from, err)) return false;
        item->recipe.type.dq = lq_ckpt_codes_stay(w, &from, s->n);
    }
    p->weights += s->n * s->k * (s->count ? s->count : 1);
    p->carried++;
    return add_item(p, *item, err);
}

// What is looked up, what makes the logits and what is plain is rounded to the nearest. Experts that read one x have
// its columns in one order.
static bool settle_rounding(lq_plan *p, lq_item *item, lq_err *err) {
    const lq_slot *s = &item->slot;
    lq_recipe *r = &item->recipe;
    if (s->layer < 0 || r->type.kind == LQ_W_PLAIN || !item->round)
        if (r->rounding == LQ_ROUND_GPTQ) r->rounding = LQ_ROUND_NEAREST;
    if (r->type.kind == LQ_W_PLAIN || !item->round) r->transform &= ~(unsigned)LQ_T_CLIP;
    if (s->count && r->order == LQ_ORDER_COLUMNS) r->order = LQ_ORDER_GROUPS;
    const bool watched = item->round && s->layer >= 0 && s->input >= 0;
    if (!watched || r->type.kind == LQ_W_PLAIN) r->salient = LQ_SALIENT_NONE;
    if (r->type.kind == LQ_W_PLAIN || (!watched && r->range == LQ_RANGE_WEIGHTED)) r->range = LQ_RANGE_FULL;
    if (item->round && !watched && r->type.act.fixed)
        return lq_fail(err, LQ_E_UNSUPPORTED, "%s: tensor %s: a scale for all activations is measured for the matrices of "
                       "layers alone; expected a type without \"tensor\"", lq_ckpt_path(p->in), s->name);
    if (!item->round || r->type.kind == LQ_W_PLAIN || !lq_recipe_needs(r)) return true;
    p->calibrates = true;
    p->paired |= r->repay > 0;
    if (s->k > p->widest) p->widest = s->k;
    p->moments |= (lq_recipe_needs(r) & LQ_STAT_HESSIAN) != 0;
    return true;
}

// `from` is the slot that it is made of where the checkpoint is not the model that is planned; else the same.
static bool add_slot(lq_plan *p, const lq_slot *s, const lq_slot *from, lq_err *err) {
    lq_item item = {.slot = *s, .recipe = p->base};
    bool keep, same;
    found f;
    if (s->role == LQ_R_KV_SCALE && !p->in_desc.kv_scaled) { // measured (kvscale.c)
        item.recipe = (lq_recipe){.type = plain_type(LQ_F32)};
        p->calibrates = true;
        if (p->desc.dim > p->widest) p->widest = p->desc.dim;
        return add_item(p, item, err);
    }
    for (int i = 0; s->layer < 0 && i < LQ_TRANSFORMS; i++) // these are of layers
        if (lq_transforms[i].search || 1 << i == LQ_T_CLIP) item.recipe.transform &= ~(1u << i);
    // The head of a tied model is the embedding, whatever else has its name.
    if (s->role == LQ_R_HEAD && s->k && p->in_desc.tied) item.source = &p->embed;
    if (s->role == LQ_R_EMBED) p->embed = *from;
    if (!find_sources(p, item.source ? item.source : from, &f, &same, err) ||
        !slot_type(p, s, &item.recipe.type, &keep, err)) return false;
    if (s->k && s->quantizable && !lq_rules_apply(p, s, &item.recipe, &keep, err)) return false;
    const bool stays = f.w && stays_coded(p, s, f.w, keep);
    const bool turned = s->from.across && !p->coded && (s->from.each || !f.w || !f.w->upright);
    if (stays && !turned) return add_coded(p, &item, f.w, same, err);
    if (stays) item.recipe.type = plain_type(LQ_F32); // codes cannot be turned: their values are kept
    p->again += f.w && !stays;
    const bool changes = item.recipe.transform & ~(unsigned)LQ_T_CLIP, plain = item.recipe.type.kind == LQ_W_PLAIN;
    // "bf16" of a matrix that is bf16 is no work, unless its elements change. Vectors and routers that change are f32.
    item.before = f.w ? lq_wtype_bits(&f.w->type, s->k) : 8 * (double)lq_dtype_size(f.t->type);
    item.round = f.w || (!keep && !(plain && item.recipe.type.elem == f.t->type && same));
    if (!item.round) item.recipe.type = plain_type(changes && !s->quantizable ? LQ_F32 : f.t->type);
    if (changes && s->k) item.round = true;
    if (!settle_rounding(p, &item, err)) return false;
    if (s->k) p->weights += s->n * s->k * (s->count ? s->count : 1);
    return add_item(p, item, err);
}

// The one that stands in the same place; itself where there is none.
static const lq_slot *same_slot(const lq_slot *was, int n, const lq_slot *s) {
    for (int i = 0; i < n; i++)
        if (was[i].role == s->role && was[i].bias == s->bias && was[i].at == s->at) return &was[i];
    return s;
}

static bool add_layer(lq_plan *p, int layer, lq_role role, lq_err *err) {
    const lq_desc *whole = p->whole.arch ? &p->whole : NULL;
    int n, had = 0;
    lq_slot *slots = lq_desc_slots(&p->desc, layer, &n);
    lq_slot *was = whole ? lq_desc_slots(whole, layer < 0 ? layer : p->o->pruned->guess.layer[layer], &had) : slots;
    bool ok = (slots && was) || lq_fail(err, LQ_E_MEMORY, "no memory for %d weights", n);
    for (int i = 0; ok && i < n; i++)
        ok = (layer < 0 && (slots[i].role < LQ_R_NORM_OUT) != (role == LQ_R_EMBED)) ||
             add_slot(p, &slots[i], whole ? same_slot(was, had, &slots[i]) : &slots[i], err);
    if (whole) free(was);
    free(slots);
    return ok;
}

// Blocks: the embedding; each decoder layer; what stands behind them.
static bool add_blocks(lq_plan *p, lq_err *err) {
    p->blocks = (size_t)p->desc.layers + 2;
    p->first = calloc(p->blocks + 1, sizeof *p->first);
    if (!p->first) return lq_fail(err, LQ_E_MEMORY, "no memory for a plan of %zu blocks", p->blocks);
    if (!add_layer(p, -1, LQ_R_EMBED, err)) return false;
    for (int i = 0; i < p->desc.layers; i++) {
        p->first[i + 1] = p->count;
        if (!add_layer(p, i, LQ_ROLES, err)) return false;
    }
    p->first[p->blocks - 1] = p->count;
    return add_layer(p, -1, LQ_R_HEAD, err);
}

// Factors are sought somewhere, if at all.
static bool check_searches(const lq_plan *p, lq_err *err) {
    bool any = !p->carried || !lq_searches(p->base.transform);
    for (size_t i = 0; i < p->count && !any; i++)
        any = p->items[i].slot.layer >= 0 && p->items[i].round && lq_searches(p->items[i].recipe.transform);
    return any || fail_quantized(p, p->first_carried, err);
}

static void add_name(lq_text *list, const char *name) {
    if (list->n) lq_text_add(list, ", ", 2);
    lq_text_json(list, name, strlen(name));
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The names of all tensors that the items are made of, sorted: *text owns them.
static bool source_names(const lq_plan *p, const char ***names, size_t *count, lq_text *text, lq_err *err) {
    *count = 0;
    for (size_t i = 0; i < p->count; i++) {
        const lq_slot *s = &p->items[i].slot;
        for (int at = 0; at < (s->count ? s->count : 1); at++, ++*count) {
            lq_pick from;
            if (lq_item_pick(p->in, &p->items[i], at, &from, NULL)) lq_text_add(text, from.name, strlen(from.name) + 1);
        }
    }
    *names = malloc((*count + 1) * sizeof **names);
    if (!*names || text->failed) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu names", *count);
    const char *name = text->p;
    for (size_t i = 0; i < *count; i++, name += strlen(name) + 1) (*names)[i] = name;
    qsort(*names, *count, sizeof **names, compare_names);
    return true;
}

// A tensor that no item is made of.
static bool add_unread(lq_plan *p, const lq_names *known, const lq_tensor *t, lq_err *err) {
    const lq_known what = lq_names_find(known, t->name);
    bool codes;
    if (what == LQ_KNOWN && lq_ckpt_part_of(p->in, t->name, &codes)) return true;
    if (what == LQ_KNOWN || (what == LQ_HARMLESS && !lq_names_kept(known, t->name))) {
        add_name(&p->dropped, t->name);
        return true;
    }
    if (what == LQ_STRANGE && !p->o->keep_unknown)
        return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s is not part of a %s; --keep-unknown carries it over as it is",
                       lq_ckpt_path(p->in), t->name,
                       p->desc.arch->name);
    add_name(&p->kept, t->name);
    return add_item(p, (lq_item){.slot = {.role = LQ_ROLES, .layer = -1}, .t = t}, err);
}

// Tensors that are in the checkpoint and not in the architecture. Items are only added when the names of all others
// were compared.
static bool add_rest(lq_plan *p, lq_err *err) {
    const size_t all = lq_ckpt_count(p->in);
    size_t n;
    const char **names = NULL;
    lq_text text = {0};
    bool *unread = calloc(all + 1, sizeof *unread);
    lq_names *known = NULL;
    bool done = unread || lq_fail(err, LQ_E_MEMORY, "no memory for %zu names", all);
    done = done && source_names(p, &names, &n, &text, err) && lq_names_open(&p->in_desc, p->in, &known, err);
    for (size_t i = 0; i < all && done; i++)
        unread[i] = !bsearch(&lq_ckpt_at(p->in, i)->name, names, n, sizeof *names, compare_names);
    for (size_t i = 0; i < all && done; i++) done = !unread[i] || add_unread(p, known, lq_ckpt_at(p->in, i), err);
    free(unread);
    free(names);
    lq_text_free(&text);
    lq_names_close(known);
    return done;
}

// --- what it takes ---

// A part begins at a multiple of 64, or of 4096 if it has so many bytes.
static size_t placed(size_t bytes) { return bytes + (bytes >= 4096 ? 4095 : bytes ? 63 : 0); }

// Whether its columns are stored in another order.
static bool turns(const lq_item *it) {
    return it->round && it->recipe.rounding == LQ_ROUND_GPTQ && it->recipe.order == LQ_ORDER_COLUMNS;
}

// Scales that are codes, with all that belongs to them.
static size_t levels_bytes(const lq_wtype *t, const lq_slot *s, size_t count) {
    const size_t scales = lq_scale_count(t, s->n, s->k), blocks = lq_scale_blocks(scales);
    return placed(count * scales) + placed(count * blocks * sizeof(float)) + placed(count * 256 * sizeof(float)) +
           placed(count * sizeof(float));
}

// What an item takes in the file, and in memory while it is rounded.
static bool item_bytes(const lq_plan *p, const lq_item *it, size_t *file, size_t *memory, lq_err *err) {
    const lq_slot *s = &it->slot;
    lq_weight_size any, laid;
    const size_t count = s->count ? (size_t)s->count : 1;
    *memory = 0;
    if (!it->round && it->recipe.type.kind == LQ_W_PLAIN) {
        const size_t bytes = it->t ? it->t->bytes : count * (size_t)s->n * (size_t)(s->k ? s->k : 1) *
            lq_dtype_size(it->recipe.type.elem);
        *file = placed(bytes);
        return true;
    }
    const lq_wtype *t = &it->recipe.type;
    const lq_layout in = lq_layout_in(p->layout, t, s->n, s->k);
    const bool packs = in != LQ_ANY;
    if (!lq_weight_sizes(t, s->n, s->k, &any) || !lq_layout_sizes(in, t, s->n, s->k, &laid))
        return lq_fail(err, LQ_E_LIMIT, "%s: tensor %s is too large", lq_ckpt_path(p->in), s->name);
    *file = placed(count * laid.q) + (t->dq ? levels_bytes(t, s, count) : placed(count * laid.scale)) +
            placed(count * laid.zero) + (t->scale == LQ_E4M3 ? placed(count * sizeof(float)) : 0) +
            (turns(it) ? placed((size_t)s->k * sizeof(int32_t)) : 0);
    if (it->round && it->recipe.type.act.fixed) *file += 2 * placed(count * sizeof(float));
    const size_t apart = it->round ? (size_t)lq_acts_limit(&it->recipe, s->k) : 0;
    *file += placed(count * apart * sizeof(int32_t)) + placed(count * apart * (size_t)s->n * sizeof(uint16_t));
    if (!it->round) *file += placed(count * (size_t)s->k * sizeof(int32_t)) + placed(count * 256 * sizeof(float));
    // Room for F32 scales, and for each part to start on 64 bytes.
    *memory = any.q + 2 * any.scale + any.zero + (packs ? laid.q + 2 * laid.scale + laid.zero : 0) + 7 * 64 +
              lq_levels_bytes(t, s->n, s->k);
    *memory = (*memory + 63) & ~(size_t)63;
    return true;
}

// What a matrix takes that a transform has made whole, in f32.
static size_t copy_bytes(const lq_item *it) {
    bool whole = false;
    for (int i = 0; i < LQ_TRANSFORMS; i++)
        whole |= it->recipe.transform >> i & 1 && lq_transforms[i].whole && lq_transforms[i].whole(&it->slot);
    return whole ? (size_t)it->slot.n * (size_t)it->slot.k * sizeof(float) : 0;
}

// What the journal says of a tensor, and the report and the journal's note of a module, at most.
static size_t told_bytes(const char *name, bool round, int count) {
    return (round ? 6 : 2) * (strlen(name) + 160) + (round ? 2 * (strlen(name) + 400 + 24 * (size_t)count) : 0);
}

// In the header: of a coded weight, the parts that this recipe gives it.
static size_t entry_room(const lq_item *it, const char *name) {
    if (it->recipe.type.kind == LQ_W_PLAIN) return lq_writer_entry_room(name);
    size_t room = lq_writer_weight_room(name, &it->recipe.type);
    if (!it->round) return room;
    char full[LQ_NAME + 16];
    for (lq_part_id i = 0; i < LQ_PARTS; i++) {
        snprintf(full, sizeof full, "%.*s%s", LQ_NAME, name, lq_part_suffix(i));
        const bool apart = i == LQ_PART_OUTLIER_COLS || i == LQ_PART_OUTLIER_W;
        const bool has = lq_part_needed(i, &it->recipe.type) || (i == LQ_PART_PERM && turns(it)) ||
                         (apart && it->recipe.salient != LQ_SALIENT_NONE);
        if (lq_part_may(i, &it->recipe.type) && !has)
            room -= lq_writer_entry_room(full);
    }
    return room;
}

static bool add_sizes(lq_plan *p, lq_err *err) {
    char name[LQ_NAME + 8];
    size_t bytes = 0, memory = 0, told = 65536;
    p->header_room = 4096 + p->recipe.n + 2 * p->kept.n;
    for (size_t i = 0; i < p->count; i++) {
        const lq_item *it = &p->items[i];
        const char *own = lq_item_name(it);
        if (!item_bytes(p, it, &bytes, &memory, err)) return false;
        p->header_room += entry_room(it, own);
        told += told_bytes(own, it->round, it->slot.count);
        p->out_bytes += bytes;
        p->rounded += it->round;
        if (memory > p->buffer) p->buffer = memory;
        if (copy_bytes(it) > p->copy) p->copy = copy_bytes(it);
    }
    for (size_t i = 0; lq_side_files[i]; i++) {
        lq_bytes file;
        if (!lq_ckpt_file(p->in, lq_side_files[i], &file, err)) return false;
        if (!file.p) continue;
        snprintf(name, sizeof name, "lq.file/%s", lq_side_files[i]);
        p->header_room += lq_writer_entry_room(name);
        told += told_bytes(name, false, 0);
        p->out_bytes += placed(file.n);
    }
    p->out_bytes += p->header_room;
    p->disk = p->out_bytes + told;
    return true;
}

// --- what decides the bytes ---

static void recipe_type(lq_text *t, const char *key, const lq_plan *p, lq_role role) {
    lq_slot s = {.role = role, .quantizable = true};
    lq_wtype type;
    char name[64] = "keep";
    bool keep;
    if (slot_type(p, &s, &type, &keep, NULL) && !keep) lq_wtype_name(&type, name, sizeof name);
    lq_text_fmt(t, ", \"%s\": \"%s\"", key, name);
}

static bool write_recipe(lq_plan *p, lq_err *err) {
    lq_text *t = &p->recipe;
    lq_text_fmt(t, "{\"method\": \"%s\", ", p->method->name);
    lq_recipe_put(t, &p->base);
    recipe_type(t, "type", p, LQ_R_Q);
    recipe_type(t, "embed", p, LQ_R_EMBED);
    if (!p->desc.tied) recipe_type(t, "head", p, LQ_R_HEAD);
    if (p->calibrates) lq_recipe_put_calib(t, &p->calib, p->o);
    // What made the input, as long as it is JSON and not too deep.
    const char *from = p->coded && !p->o->pruned ? lq_ckpt_meta(p->in, "lq.recipe") : NULL;
    if (from && !lq_json_check(from, strlen(from), (lq_json_limits){1u << 20, 10}, "lq.recipe", NULL)) from = NULL;
    char *rules = p->rules ? cJSON_PrintUnformatted(p->rules) : NULL;
    if (p->rules && !rules) t->failed = true;
    if (p->mixed) lq_text_fmt(t, ", \"mixed\": true");
    if (rules) lq_text_fmt(t, ", \"modules\": %s", rules);
    if (p->o->pruned && p->o->pruned->told.n) lq_text_fmt(t, ", \"prune\": %s", p->o->pruned->told.p);
    cJSON_free(rules);
    if (from) lq_text_fmt(t, ", \"from\": %s", from);
    lq_text_fmt(t, "}");
    return !t->failed || lq_fail(err, LQ_E_MEMORY, "no memory for a recipe");
}

// Hashes a text with its length, so that no two lists of texts look alike.
static void hash_text(XXH3_state_t *h, const char *p, size_t n) {
    const uint64_t size = n;
    XXH3_128bits_update(h, &size, sizeof size);
    XXH3_128bits_update(h, p, n);
}

// A tensor by name, type, shape, and samples of 64 bytes: what tells one checkpoint from another without reading all of
// it.
static void hash_tensor(const lq_ckpt *in, XXH3_state_t *h, const lq_tensor *t, size_t samples) {
    enum { SAMPLE = 64 };
    hash_text(h, t->name, strlen(t->name));
    const int64_t head[3] = {(int64_t)t->type, t->rank, (int64_t)t->bytes};
    XXH3_128bits_update(h, head, sizeof head);
    XXH3_128bits_update(h, t->shape, (size_t)t->rank * sizeof *t->shape);
    const char *p = t->data;
    const bool few = t->bytes <= samples * SAMPLE;
    const size_t apart = few ? 0 : (t->bytes - SAMPLE) / (samples - 1), size = few ? t->bytes : SAMPLE;
    if (few) samples = 1;
    for (size_t i = 0; i < samples; i++) lq_ckpt_soon(in, p + apart * i, size); // all at once, not one after the other
    for (size_t i = 0; i < samples; i++) XXH3_128bits_update(h, p + apart * i, size);
}

static uint64_t recipe_hash(const lq_plan *p) {
    const int64_t head[] = {LQ_QUANT_NUMERICS, p->layout, p->o->keep_unknown};
    return XXH64(p->recipe.p, p->recipe.n, XXH64(head, sizeof head, 0));
}

bool lq_input_hash(lq_ckpt *in, const char *made, uint64_t out[2], lq_err *err) {
    XXH3_state_t *h = XXH3_createState();
    if (!h) return lq_fail(err, LQ_E_MEMORY, "no memory for a hash");
    XXH3_128bits_reset(h);
    lq_file_info f;
    if (made) hash_text(h, made, strlen(made));
    for (size_t i = 0; !made && lq_ckpt_stat(in, i, &f); i++) {
        const uint64_t facts[] = {f.ino, f.bytes, (uint64_t)f.sec, (uint64_t)f.nsec};
        XXH3_128bits_update(h, facts, sizeof facts);
    }
    // 64 of a tensor, of many tensors fewer: each may be a read from the disk.
    const size_t tensors = lq_ckpt_count(in), share = 32768 / (tensors + 1);
    const size_t samples = share > 64 ? 64 : share < 2 ? 2 : share;
    lq_ckpt_sparse(in, true);
    for (size_t i = 0; i < tensors; i++) {
        hash_tensor(in, h, lq_ckpt_at(in, i), samples);
        lq_ckpt_drop(in, lq_ckpt_at(in, i));
    }
    lq_ckpt_sparse(in, false);
    bool done = true;
    for (size_t i = 0; lq_side_files[i] && done; i++) {
        lq_bytes file;
        done = lq_ckpt_file(in, lq_side_files[i], &file, err);
        if (!done || !file.p) continue;
        hash_text(h, lq_side_files[i], strlen(lq_side_files[i]));
        hash_text(h, file.p, file.n);
    }
    const XXH128_hash_t x = XXH3_128bits_digest(h);
    out[0] = x.high64, out[1] = x.low64;
    XXH3_freeState(h);
    return done;
}

// "<recipe>.<input>": work on another recipe may be wanted still, what came of an input that has changed may not.
static bool make_fingerprint(lq_plan *p, lq_err *err) {
    uint64_t input[2];
    // What was pruned may lie in another file of the same.
    if (!lq_input_hash(p->in, p->o->pruned ? p->o->pruned->id : NULL, input, err)) return false;
    snprintf(p->fingerprint, sizeof p->fingerprint, "%016" PRIx64 ".%016" PRIx64 "%016" PRIx64, recipe_hash(p),
             input[0], input[1]);
    return true;
}

bool lq_plan_device(lq_plan *p, lq_dev *dev, lq_err *err) {
    char solver[250];
    if (!p->calibrates) return true;
    if (!dev->ops.solver(dev, solver, sizeof solver, err)) return false;
    const size_t n = strlen(p->fingerprint);
    snprintf(p->fingerprint + n, sizeof p->fingerprint - n, ".%s, %s", dev->isa, solver);
    return true;
}

// --- the plan in words ---

void lq_tell(const lq_quant_opts *o, const char *fmt, ...) {
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (o->plan) o->plan(o->arg, line);
}

// What the output's file system has left for it, the parts of an interrupted run counted in.
static size_t disk_left(const char *out) {
    char path[4096];
    struct statvfs fs;
    struct stat st;
    const char *slash = strrchr(out, '/');
    if (!slash) snprintf(path, sizeof path, ".");
    else snprintf(path, sizeof path, "%.*s", slash == out ? 1 : (int)(slash - out), out);
    if (statvfs(path, &fs)) return SIZE_MAX; // opening the output will say what is wrong
    size_t left = (size_t)fs.f_bavail * fs.f_frsize;
    snprintf(path, sizeof path, "%s.partial/data", out);
    if (stat(path, &st) == 0) left += (size_t)st.st_blocks * 512;
    return left;
}

static bool has_vocabulary(lq_ckpt *c) {
    lq_bytes file = {NULL, 0};
    for (size_t i = 0; lq_vocab_files[i] && !file.p; i++)
        if (!lq_ckpt_file(c, lq_vocab_files[i], &file, NULL)) return true; // there, but cannot be read: said elsewhere
    return file.p != NULL;
}

// What the layer that is held until it is written takes, at most.
static size_t held_bytes(const lq_plan *p) {
    size_t most = 0;
    for (size_t b = 0; b < p->blocks; b++) {
        size_t held = 0;
        for (size_t i = p->first[b]; i < p->first[b + 1]; i++) {
            const lq_item *it = &p->items[i];
            const bool unlaid = p->layout == LQ_CUDA && it->recipe.type.kind != LQ_W_PLAIN; // to be multiplied here
            if ((it->round || unlaid) && it->slot.layer >= 0)
                held += (size_t)(it->slot.count ? it->slot.count : 1) *
                        (lq_module_bytes(&it->recipe.type, it->slot.n, it->slot.k) +
                         lq_acts_bytes(&it->recipe, it->slot.n, it->slot.k));
        }
        if (held > most) most = held;
    }
    return most;
}

// How many experts at most can be told apart at once.
static int experts_most(const lq_plan *p) {
    int most = 1;
    for (size_t i = 0; i < p->count; i++)
        if (p->items[i].round && p->items[i].slot.count > most) most = p->items[i].slot.count;
    return most;
}

// What factors are tried on: some rows of each matrix that reads an input (awq.c, smooth.c), of `smooth` what they make
// of rows of the text too, and codes of the largest matrix.
static size_t tried_bytes(const lq_plan *p) {
    const bool smooth = p->base.transform & LQ_T_SMOOTH;
    size_t most = 0;
    for (size_t b = 0; b < p->blocks; b++) {
        size_t of[LQ_INPUTS] = {0};
        for (size_t i = p->first[b]; i < p->first[b + 1]; i++) {
            const lq_slot *s = &p->items[i].slot;
            if (!p->items[i].round || s->layer < 0 || s->input < 0 || !s->k) continue;
            const int64_t count = s->count ? s->count : 1, all = count * lq_seek_rows(s->k, s->n, count, LQ_TRIED);
            const int64_t one = lq_seek_rows(s->k, s->n, 1, LQ_TRIED);
            const size_t k = (size_t)s->k, n = (size_t)s->n, rows = (size_t)(all > one ? all : one);
            of[s->input] += rows * (k + (smooth ? LQ_SOME : 0)) * sizeof(float) +
                            (smooth ? LQ_SOME * n * sizeof(float) : 0);
            most = of[s->input] > most ? of[s->input] : most;
        }
    }
    return most + p->buffer + (smooth ? 2 * LQ_SOME + 32 : 64) * (size_t)p->widest * sizeof(float);
}

// The sums of the widest input and what is made of them, and the rows between layers, are in memory as far as that is
// allowed; else they lie in a file. The chunk of text, a band of rows and the layer that is held have to be in memory.
static void plan_calibration(lq_plan *p, int threads) {
    const size_t k = (size_t)p->widest, cells = p->moments ? k * k : 1, pair = p->paired, sum = cells * (8 + 8 * pair);
    const size_t apart = p->moments ? (size_t)lq_acts_limit(&p->base, p->widest) : 0;
    const size_t solved = cells * (12 + 12 * pair) + apart * (k * (16 + 8 * pair) + apart * 12), most = p->o->max_ram;
    const lq_stream_size s = lq_stream_cost(&p->desc, &p->calib, p->paired, p->widest);
    // Six of a band's rows at the same time, and what OpenBLAS takes for a thread.
    p->memory += s.chunk + held_bytes(p) + 6 * lq_band_bytes(p->widest) + k * 512 +
                 (p->moments ? (size_t)threads * (5u << 20) : 0);
    if (p->o->device && strcmp(p->o->device, "cpu")) p->memory += lq_band_lent();
    size_t hidden = 0;
    for (size_t i = 0; i < p->count; i++)
        if (lq_hidden_of(&p->items[i].slot, &p->items[i].recipe) && lq_hidden_bytes(&p->items[i].slot) > hidden)
            hidden = lq_hidden_bytes(&p->items[i].slot);
    p->memory += hidden;
    if (lq_searches(p->base.transform)) p->memory += tried_bytes(p);
    const size_t room = !most ? SIZE_MAX : most > p->memory ? most - p->memory : 0, all = most ? room : (size_t)1 << 28;
    const int experts = experts_most(p);
    const size_t each = experts > 1 ? 2 * sum : sum; // of an expert that was given little, all rows beside its own
    p->spill = most ? s.kept + sum + solved > room : s.kept > KEPT;
    const size_t rest = p->spill ? all : all - s.kept;
    const size_t fit = rest < solved + 2 * each ? 1 : (rest - solved) / each;
    p->together = fit < (size_t)experts ? (int)fit : experts;
    const size_t sums = each * (size_t)p->together + solved, kept = p->spill ? 0 : s.kept;
    p->rooms.left = room;
    p->memory += kept + (sums < room - kept ? sums : room - kept);
    p->scratch = s.kept - kept + (sums > room - kept ? sums - (room - kept) : 0);
    p->disk += p->scratch;
}

bool lq_plan_tell(lq_plan *p, int threads, lq_err *err) {
    const double mb = 1e6;
    const size_t in = p->o->pruned ? p->o->pruned->in_bytes : lq_ckpt_file_bytes(p->in), left = disk_left(p->o->out);
    // A worker has its scratch; the rest is the program's own.
    p->memory = p->buffer + (size_t)threads * (1u << 20) + p->count * sizeof *p->items + p->header_room + (4u << 20);
    if (p->calibrates) plan_calibration(p, threads);
    if (p->copy) p->memory += p->copy + (size_t)threads * (size_t)p->desc.dim * LQ_STRIPE * sizeof(float);
    if (p->calib.memory > p->memory) p->memory = p->calib.memory; // before all else
    lq_tell(p->o, "%s: %s, %d layers, %.1f M weights, %.1f MB", lq_ckpt_path(p->in), p->desc.arch->name,
            p->desc.layers, (double)p->weights / 1e6, (double)in / mb);
    lq_tell(p->o, "%s: %zu matrices in %zu blocks, recipe %s", p->method->name, p->rounded, p->blocks, p->recipe.p);
    if (p->calibrates && !lq_recipe_calibrated(p->given, &p->calib))
        lq_tell(p->o, "the recipe was made on other calibration text: --calib, --samples, --seqlen and --seed say which");
    if (p->given && cJSON_GetObjectItemCaseSensitive(p->given, "prune") && !p->o->pruned)
        lq_tell(p->o, "the recipe was made of a pruned model, which this one is not: --prune says so");
    if (p->carried) lq_tell(p->o, "%zu matrices, coded already, keep their codes", p->carried);
    if (p->again)
        lq_tell(p->o, "%zu matrices are coded already: what their codes say is rounded once more, what was lost stays lost",
            p->again);
    if (p->dropped.n) lq_tell(p->o, "dropped, no forward reads them: %s", p->dropped.p);
    if (p->kept.n) lq_tell(p->o, "carried over, nobody knows them: %s", p->kept.p);
    if (!has_vocabulary(p->in))
        lq_tell(p->o, "no tokenizer beside it: the file gets none, and lq run, serve, eval and bench refuse a model without one");
    lq_tell(p->o, "%s: about %.1f MB in layout %s, %.2f times smaller, with a header of at most %.1f KB", p->o->out,
        (double)p->out_bytes / mb, lq_layout_names[p->layout], (double)in / (double)p->out_bytes,
        (double)p->header_room / 1e3);
    lq_tell(p->o, "memory: %.1f MB with %d threads, and pages of the mapped checkpoint that are given back after use",
        (double)p->memory / mb,
        threads);
    if (p->seconds < 1) lq_tell(p->o, "time: less than a second");
    else lq_tell(p->o, "time: about %s if this machine has nothing else to do", lq_words_time(p->seconds).text);
    if (p->scratch) lq_tell(p->o, "scratch file: %.1f MB in %s.partial", (double)p->scratch / mb, p->o->out);
    if (p->o->max_ram && p->memory > p->o->max_ram)
        return lq_fail(err, LQ_E_LIMIT, "memory: the pass needs %.1f MB, more than the %.1f MB it may use",
                       (double)p->memory / mb,
                       (double)p->o->max_ram / mb);
    if (left < p->disk)
        return lq_fail(err, LQ_E_IO, "%s: needs %.1f MB, its disk has %.1f MB left", p->o->out, (double)p->disk / mb,
                       (double)left / mb);
    return true;
}

// --- the whole ---

// The method's, with what the recipe given says; without one, auto looks for rules.
static bool read_recipe(lq_plan *p, lq_err *err) {
    const lq_quant_opts *o = p->o;
    const bool sized = o->target_bits > 0 || o->target_size;
    lq_text chosen = {0};
    p->base = p->method->recipe;
    cJSON *json = NULL;
    bool done = !p->given || lq_recipe_read(p->given, &p->base, &p->rules, &p->mixed, err);
    if (done && sized && strcmp(p->method->name, "auto"))
        done = lq_fail(err, LQ_E_USAGE, "a target is what method auto takes, not %s", p->method->name);
    if (done && !p->rules && !strcmp(p->method->name, "auto")) {
        done = (sized || lq_fail(err, LQ_E_USAGE, "auto wants a target, bits a weight or a size")) &&
               lq_auto(o, &chosen, &p->automatic, &p->measured, err) &&
               lq_json_parse(chosen.p, chosen.n, (lq_json_limits){16u << 20, 16}, "auto", &json, err) &&
               lq_recipe_read(json, &p->base, &p->rules, &p->mixed, err);
    }
    lq_text_free(&chosen);
    cJSON_Delete(json);
    if (!done || !p->rules) return done;
    p->rule_used = calloc((size_t)cJSON_GetArraySize(p->rules) + 1, sizeof *p->rule_used);
    return p->rule_used || lq_fail(err, LQ_E_MEMORY, "no memory for a recipe");
}

static bool read_options(lq_plan *p, lq_err *err) {
    const lq_quant_opts *o = p->o;
    const char *method = o->method ? o->method : "rtn", *layout = o->layout ? o->layout : "any";
    p->method = lq_method_find(method);
    if (!p->method) return lq_fail(err, LQ_E_USAGE, "method %s: there is none of this name", method);
    p->base = p->method->recipe;
    if (!read_recipe(p, err)) return false;
    if (o->salient > 0) p->base.salient = LQ_SALIENT_COLUMNS, p->base.share = (float)o->salient;
    for (int i = 0; o->range && (p->base.range = (lq_range)i, i <= LQ_RANGES); i++) {
        if (i == LQ_RANGES) return lq_fail(err, LQ_E_USAGE, "range %s: there is none of this name", o->range);
        if (!strcmp(o->range, lq_range_name((size_t)i))) break;
    }
    if (o->alpha && !(p->base.transform & LQ_T_SMOOTH))
        return lq_fail(err, LQ_E_USAGE, "alpha is what method smoothquant takes, not %s", p->method->name);
    if ((o->alpha && !lq_recipe_alpha(o->alpha, &p->base, err)) || !lq_recipe_check(&p->base, err)) return false;
    const char *name;
    size_t nth = 0;
    while ((name = lq_quant_layout(nth)) && strcmp(name, layout) != 0) nth++;
    p->layout = LQ_ANY;
    while (name && strcmp(lq_layout_names[p->layout], name) != 0) p->layout++;
    if (!name) return lq_fail(err, LQ_E_USAGE, "layout %s: there is none of this name", layout);
    lq_wtype type;
    const char *types[] = {o->type, o->head, o->embed}, *const names[] = {"type", "head", "embed"};
    for (int i = 0; i < 3; i++) {
        if (!types[i] || !strcmp(types[i], "keep")) continue;
        if (!lq_wtype_parse(types[i], &type, err)) return lq_fail_in(err, "%s", names[i]);
        lq_recipe r = p->base;
        r.type = type;
        if (!lq_recipe_check(&r, err)) return lq_fail_in(err, "%s", names[i]);
    }
    return true;
}

static bool plan_transforms(lq_plan *p, lq_err *err) {
    for (int i = 0; i < LQ_TRANSFORMS; i++)
        if (p->base.transform >> i & 1 && lq_transforms[i].plan && !lq_transforms[i].plan(&p->desc, err))
            return lq_fail_in(err, "%s", lq_ckpt_path(p->in));
    return true;
}

// Of a model whose pruning is only planned the checkpoint is not there: it is described by what would be.
static bool read_descs(lq_plan *p, lq_err *err) {
    const lq_text *config = p->o->pruned && p->o->dry_run ? &p->o->pruned->config : NULL;
    if (!config) return lq_desc_read(p->in, &p->in_desc, err) && lq_desc_read(p->in, &p->desc, err);
    const lq_bytes file = {config->p, config->n};
    return lq_desc_read(p->in, &p->whole, err) && lq_desc_read_as(p->in, &file, &p->in_desc, err) &&
           lq_desc_read_as(p->in, &file, &p->desc, err);
}

bool lq_plan_make(const lq_quant_opts *o, lq_plan *p, lq_err *err) {
    *p = (lq_plan){.own = *o, .alpha = -1};
    p->o = o = &p->own;
    if (!o->in || !o->out || !*o->out) return lq_fail(err, LQ_E_USAGE, "a checkpoint and an output are needed");
    if (!lq_recipe_opts(&p->own, &p->given, err) || !read_options(p, err) || !lq_ckpt_open(o->in, &p->in, err))
        return false;
    p->coded = is_coded(p);
    if (!lq_places_check(p, err) || !read_descs(p, err)) return false;
    p->base.kv_scales |= o->kv_scales;
    p->desc.kv_scaled |= p->base.kv_scales;
    if (!plan_transforms(p, err) || !add_blocks(p, err) || (!p->whole.arch && !add_rest(p, err))) return false;
    p->first[p->blocks] = p->count;
    if (!lq_rules_check(p, err) || !check_searches(p, err)) return false;
    if (p->calibrates && !lq_calib_open(o, p->desc.ctx, &p->calib, err)) return false;
    if (p->calibrates && !o->dry_run && !lq_self_write(o, &p->calib, err)) return false;
    return write_recipe(p, err) && add_sizes(p, err) && make_fingerprint(p, err);
}

void lq_plan_free(lq_plan *p) {
    if (p->in) lq_ckpt_close(p->in);
    lq_desc_free(&p->in_desc);
    lq_desc_free(&p->desc);
    lq_desc_free(&p->whole);
    free(p->items);
    free(p->first);
    free(p->pace);
    lq_calib_close(&p->calib);
    cJSON_Delete(p->given);
    cJSON_Delete(p->rules);
    free(p->rule_used);
    lq_text_free(&p->automatic);
    lq_text_free(&p->dropped);
    lq_text_free(&p->kept);
    lq_text_free(&p->recipe);
    lq_text_free(&p->report);
}
