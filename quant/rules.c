// rules.c: a recipe's rules for single matrices: {"modules": [{"match": "*.down_proj.weight", "type": "int8 row"}]}. A
// pattern is as a shell's (*, ?, [a-z]) and is held against the whole name that a matrix has in lq's files; of rules
// that say the same thing the last one counts. Refused: a pattern that fits nothing, and parts of one product that
// would get different types unless "mixed" says that it is meant. Owns nothing: the rules are the plan's.
#include "quant/pass.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { NEAREST = 3, LONGEST = 256 };

bool lq_rules_read(const cJSON *recipe, cJSON **out, lq_err *err) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(recipe, "modules"), *rule;
    int i = 0;
    *out = NULL;
    if (!list) return true;
    if (!cJSON_IsArray(list)) return lq_fail(err, LQ_E_USAGE, "recipe: \"modules\" is no list [...]");
    cJSON_ArrayForEach(rule, list) {
        const char *match = lq_json_str(rule, "match");
        i++;
        if (!match || !*match || strlen(match) >= LONGEST)
            return lq_fail(err, LQ_E_USAGE, "recipe: rule %d of \"modules\" has no \"match\", a pattern of names", i);
        lq_recipe r = {0};
        bool keep = false;
        if (!lq_recipe_rule(rule, &r, &keep, err)) return lq_fail_in(err, "rule %d, \"%s\"", i, match);
    }
    *out = cJSON_Duplicate(list, true);
    return *out || lq_fail(err, LQ_E_MEMORY, "no memory for a recipe");
}

bool lq_rules_apply(lq_plan *p, const lq_slot *s, lq_recipe *r, bool *keep, lq_err *err) {
    const cJSON *rule;
    size_t i = 0;
    cJSON_ArrayForEach(rule, p->rules) {
        const char *match = lq_json_str(rule, "match");
        if (fnmatch(match, s->name, 0) == 0) {
            p->rule_used[i] = true;
            if (!lq_recipe_rule(rule, r, keep, err) || (!*keep && !lq_recipe_check(r, err)))
                return lq_fail_in(err, "recipe: \"%s\"", match);
        }
        i++;
    }
    return true;
}

// --- what fits nothing ---

// How many letters have to change.
static int distance(const char *a, const char *b) {
    int row[LONGEST + 1], n = (int)strlen(b);
    if (n > LONGEST) n = LONGEST;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1] && i <= LONGEST; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            const int above = row[j], swap = corner + (a[i - 1] != b[j - 1]);
            const int edge = (above < row[j - 1] ? above : row[j - 1]) + 1;
            row[j] = swap < edge ? swap : edge;
            corner = above;
        }
    }
    return row[n];
}

static bool fail_unused(const lq_plan *p, const char *match, lq_err *err) {
    const char *name[NEAREST] = {"", "", ""};
    int far[NEAREST] = {1 << 20, 1 << 20, 1 << 20};
    for (size_t i = 0; i < p->count; i++) {
        const lq_slot *s = &p->items[i].slot;
        if (!s->k || s->role == LQ_ROLES || !s->quantizable || s->layer > 0) continue; // layers are alike
        const int d = distance(match, s->name);
        int at = NEAREST;
        while (at > 0 && d < far[at - 1]) at--;
        for (int k = NEAREST - 1; k > at; k--) far[k] = far[k - 1], name[k] = name[k - 1];
        if (at < NEAREST) far[at] = d, name[at] = s->name;
    }
    return lq_fail(err, LQ_E_USAGE, "recipe: \"%s\" fits no matrix of this model; the nearest are %s, %s, %s", match,
                   name[0], name[1], name[2]);
}

static bool apart(const lq_item *a, const lq_item *b) {
    const lq_slot *s = &a->slot, *t = &b->slot;
    return s->layer >= 0 && s->layer == t->layer && s->input == t->input && s->input >= 0 && s->quantizable &&
           t->quantizable && s->k && t->k && !s->count == !t->count &&
           !lq_wtype_equal(&a->recipe.type, &b->recipe.type);
}

bool lq_rules_check(const lq_plan *p, lq_err *err) {
    const cJSON *rule;
    size_t at = 0;
    cJSON_ArrayForEach(rule, p->rules) {
        if (!p->rule_used[at++]) return fail_unused(p, lq_json_str(rule, "match"), err);
    }
    for (size_t i = 1; i < p->count && p->rules && !p->mixed; i++)
        for (size_t k = i; k-- > 0 && p->items[k].slot.layer == p->items[i].slot.layer;) {
            if (!apart(&p->items[i], &p->items[k])) continue;
            char a[LQ_WTYPE_TEXT], b[LQ_WTYPE_TEXT];
            lq_wtype_name(&p->items[i].recipe.type, a, sizeof a);
            lq_wtype_name(&p->items[k].recipe.type, b, sizeof b);
            return lq_fail(err, LQ_E_USAGE, "recipe: %s would be %s and %s %s, which are multiplied together; \"mixed\": true says "
                           "that it is meant", p->items[k].slot.name, b, p->items[i].slot.name, a);
        }
    return true;
}
