// tokenizer.c: the whole of a tokenizer.json, and of any tokenizer what others ask. It owns the lq_tokenizer; from
// which file it is read decides tok_files.c. Refuses components that it does not know, in one line that names them.
#include <stdlib.h>
#include <string.h>
#include "runtime/lq.h"
#include "runtime/text/tok.h"

// --- opening ---

bool lq_tok_json_parse(cJSON *json, const cJSON *config, lq_tokenizer *t, lq_err *err) {
    cJSON *added = cJSON_GetObjectItemCaseSensitive(json, "added_tokens");
    if (!added || cJSON_IsNull(added)) {
        cJSON_DeleteItemFromObjectCaseSensitive(json, "added_tokens");
        added = cJSON_AddArrayToObject(json, "added_tokens");
    }
    if (!cJSON_IsArray(added)) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: added_tokens is not an array");
    // Tokens that only tokenizer_config.json names are added tokens too.
    const cJSON *more = cJSON_GetObjectItemCaseSensitive(config, "added_tokens_decoder");
    return (!cJSON_IsObject(more) || lq_tok_added_merge(added, more, err)) &&
           lq_tok_model_parse(cJSON_GetObjectItemCaseSensitive(json, "model"), added, &t->vocab, err) &&
           lq_tok_norm_parse(cJSON_GetObjectItemCaseSensitive(json, "normalizer"), t, err) &&
           lq_tok_pre_parse(cJSON_GetObjectItemCaseSensitive(json, "pre_tokenizer"), t, err) &&
           lq_tok_dec_parse(cJSON_GetObjectItemCaseSensitive(json, "decoder"), t, err) &&
           lq_tok_added_parse(added, t, err) &&
           lq_tok_post_parse(cJSON_GetObjectItemCaseSensitive(json, "post_processor"), config, t, err);
}

void lq_tokenizer_close(lq_tokenizer *t) {
    if (!t) return;
    for (int i = 0; i < t->norms; i++) {
        lq_tok_pattern_free(&t->norm[i].pattern);
        lq_tok_charsmap_free(&t->norm[i].map);
        free(t->norm[i].text);
    }
    for (int i = 0; i < t->decs; i++) {
        lq_tok_pattern_free(&t->dec[i].pattern);
        free(t->dec[i].text);
    }
    for (int i = 0; t->pre && i < LQ_TOK_MAX_OPS; i++) lq_tok_pattern_free(&t->pre[i].pattern);
    for (size_t i = 0; i < t->addeds; i++) {
        free(t->added[i].content);
        free(t->added[i].shown);
    }
    free(t->norm);
    free(t->pre);
    free(t->dec);
    free(t->added);
    lq_tok_trie_free(&t->exact);
    lq_tok_trie_free(&t->normal);
    lq_tok_vocab_free(&t->vocab);
    free(t->before.p);
    free(t->after.p);
    free(t->bytes.p);
    free(t->bytes.at);
    free(t->first.p);
    free(t->first.at);
    free(t->trait);
    free(t->unk_text);
    free(t);
}

// --- asking ---

int32_t lq_tokenizer_bos(const lq_tokenizer *t) { return t->before.n ? t->before.p[0] : -1; }
int lq_tokenizer_vocab(const lq_tokenizer *t) { return t->vocab.count; }

int32_t lq_tokenizer_id(const lq_tokenizer *t, const char *token, size_t n) {
    return lq_tok_added_id(t, token, n);
}

bool lq_tokenizer_is_special(const lq_tokenizer *t, int32_t id) {
    return lq_tok_is_special(&t->vocab, id);
}
