// tiny.h: a small random model on disk, for tests of the engine: a byte-level tokenizer, ids
// 0-255 the bytes, 256 <s>, 257 </s>.
#ifndef LQ_TINY_H
#define LQ_TINY_H
#include "formats/writer.h"
#include "quant/quant.h"
#include "runtime/model/arch.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static inline float tiny_noise(uint64_t *s) { // xorshift, three uniforms: near enough to normal
    float sum = 0;
    for (int i = 0; i < 3; i++) {
        *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
        sum += (float)(*s >> 40) / 16777216.0f - 0.5f;
    }
    return sum * 2;
}

static inline bool tiny_text(const char *dir, const char *name, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    fputs(text, f);
    return fclose(f) == 0;
}

static inline bool tiny_tokenizer(const char *dir) {
    static char text[16384];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    int extra = 0;
    for (int b = 0; b < 256; b++) {
        const bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        const int c = plain ? b : 256 + extra++;
        char utf8[3] = {0}, esc[8];
        if (c < 128) utf8[0] = (char)c;
        else utf8[0] = (char)(0xc0 | c >> 6), utf8[1] = (char)(0x80 | (c & 63));
        snprintf(esc, sizeof esc, "%s%s", c == '"' || c == '\\' ? "\\" : "", utf8);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\"%s\":%d", b ? "," : "", esc, b);
    }
    snprintf(text + n, sizeof text - n,
             "}},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\"},"
             "\"added_tokens\":[{\"id\":256,\"content\":\"<s>\",\"special\":true},{\"id\":257,\"content\":\"</s>\",\"special\":true}]}");
    return tiny_text(dir, "tokenizer.json", text);
}

// DIR/config.json. `more`: further keys, each behind a comma. The weights of a Llama are also those of a Mistral, so
// that one model can be looked at with windows and without: "MistralForCausalLM", ",\"sliding_window\":40".
static inline bool tiny_config(const char *dir, const char *arch, bool tied, const char *more) {
    char config[900];
    snprintf(config, sizeof config,
             "{\"architectures\":[\"%s\"],\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
             "\"num_key_value_heads\":2,\"vocab_size\":260,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":256,\"tie_word_embeddings\":%s,"
             "\"bos_token_id\":256,\"eos_token_id\":257%s}", arch, tied ? "true" : "false", more);
    return tiny_text(dir, "config.json", config);
}

static inline bool tiny_weights(lq_writer *writer, const lq_desc *d, lq_err *err) {
    static float w[260 * 64];
    static uint16_t h[260 * 64];
    uint64_t seed = 88172645463325252u;
    bool done = true;
    for (int l = -1; l < d->layers && done; l++) {
        int n;
        lq_slot *slots = lq_desc_slots(d, l, &n);
        for (int i = 0; i < n && done; i++) {
            const size_t count = (size_t)slots[i].n * (size_t)(slots[i].k ? slots[i].k : 1);
            const float scale = !slots[i].k                    ? 0.2f
                                : slots[i].role == LQ_R_EMBED ? 1.5f : 2.5f / sqrtf((float)slots[i].k);
            for (int at = 0; at < (slots[i].count ? slots[i].count : 1) && done; at++) {
                lq_pick pick;
                for (size_t j = 0; j < count; j++) w[j] = (slots[i].k ? 0 : 1) + scale * tiny_noise(&seed);
                lq_dtypes[LQ_BF16].from_f32(w, h, count);
                done = lq_slot_pick(&slots[i], at, &pick) &&
                       lq_writer_add(writer, pick.name, LQ_BF16, slots[i].k ? 2 : 1,
                                     (int64_t[]){slots[i].n, slots[i].k}, h, err);
            }
        }
        free(slots);
    }
    return done;
}

// Writes DIR/model.safetensors, config.json and tokenizer.json of a model that lq_archs[]
// knows by this name and config.
static inline bool tiny_model_of(const char *dir, const char *arch, bool tied, const char *more, lq_err *err) {
    char out[600];
    lq_ckpt *c = NULL;
    lq_desc d = {0};
    lq_writer *writer;
    mkdir(dir, 0777);
    if (!tiny_config(dir, arch, tied, more) || !tiny_tokenizer(dir))
        return lq_fail(err, LQ_E_IO, "%s: cannot write", dir);
    snprintf(out, sizeof out, "%s/model.safetensors", dir);
    lq_writer_opts o = {.out = out, .fingerprint = "tiny", .plain = true, .overwrite = true, .header_room = 65536};
    // A description is read through a checkpoint: first of one that holds a single number.
    if (!lq_writer_open(&o, &writer, err)) return false;
    bool done = lq_writer_add(writer, "none", LQ_U8, 1, (int64_t[]){1}, "", err) &&
                lq_writer_commit(writer, NULL, NULL, err);
    lq_writer_close(writer, !done);
    done = done && lq_ckpt_open(dir, &c, err) && lq_desc_read(c, &d, err);
    if (c) lq_ckpt_close(c);
    if (!done || !lq_writer_open(&o, &writer, err)) return false;
    done = tiny_weights(writer, &d, err) && lq_writer_commit(writer, NULL, NULL, err);
    lq_writer_close(writer, !done);
    lq_desc_free(&d);
    return done;
}

static inline bool tiny_model(const char *dir, bool tied, lq_err *err) {
    return tiny_model_of(dir, "LlamaForCausalLM", tied, "", err);
}

// What makes a Mixtral of its config.
static const char tiny_experts[] = ",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":null";

// DIR.lq out of DIR; its name goes to `out`.
static inline bool tiny_quantize(const char *dir, const char *type, char *out, size_t size, lq_err *err) {
    lq_quant_result r = {0};
    snprintf(out, size, "%s.lq", dir);
    const bool done = lq_quantize(&(lq_quant_opts){.in = dir, .out = out, .type = type, .threads = 2}, &r, err);
    lq_quant_result_free(&r);
    return done;
}
#endif
