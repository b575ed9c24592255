// metrics.c: what is counted, as Prometheus reads it, and what each block of the KV cache is for. Names that begin with
// vllm: are vLLM's, so that its dashboards show lq.
#include "runtime/serve/serve.h"
#include <stdio.h>
#include <string.h>

// Upper ends of buckets, in seconds.
static const double ends[LQ_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};

void lq_times_add(lq_times *t, double s) {
    int i = 0;
    while (i < LQ_BUCKETS && s > ends[i]) i++;
    atomic_fetch_add(&t->bucket[i], 1);
    atomic_fetch_add(&t->count, 1);
    double sum = atomic_load(&t->sum);
    while (!atomic_compare_exchange_weak(&t->sum, &sum, sum + s)) continue;
}

static void about(lq_text *out, const char *name, const char *type, const char *help) {
    lq_text_fmt(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void value(lq_text *out, const server *s, const char *name, const char *label, double v) {
    lq_text_fmt(out, "%s{model_name=", name);
    lq_text_json(out, s->api.name, strlen(s->api.name)); // a label's escapes are JSON's, for the characters a name has
    lq_text_fmt(out, "%s} %.17g\n", label, v);
}

static void metric(lq_text *out, const server *s, const char *name, const char *type, const char *help, double v) {
    about(out, name, type, help);
    value(out, s, name, "", v);
}

static void times(lq_text *out, const server *s, const char *name, const char *help, const lq_times *t) {
    char row[96], label[48];
    uint64_t below = 0;
    about(out, name, "histogram", help);
    snprintf(row, sizeof row, "%s_bucket", name);
    for (int i = 0; i <= LQ_BUCKETS; i++) {
        below += atomic_load(&t->bucket[i]);
        if (i < LQ_BUCKETS) snprintf(label, sizeof label, ",le=\"%g\"", ends[i]);
        else snprintf(label, sizeof label, ",le=\"+Inf\"");
        value(out, s, row, label, (double)below);
    }
    snprintf(row, sizeof row, "%s_sum", name);
    value(out, s, row, "", atomic_load(&t->sum));
    snprintf(row, sizeof row, "%s_count", name);
    value(out, s, row, "", (double)below);
}

bool lq_metrics_run(request *r, const char *rest) {
    static const struct { const char *name; lq_finish finish; } reasons[] = {
        {"stop", LQ_STOP}, {"length", LQ_LENGTH}, {"deadline", LQ_LATE}, {"abort", LQ_ABORTED},
    };
    server *s = r->s;
    lq_text *out = &r->out;
    lq_engine_stats e;
    char label[64];
    (void)rest;
    lq_engine_describe(s->e, &e);
    const double used = e.kv_blocks ? 1 - (double)e.kv_free / e.kv_blocks : 0;
    const struct { const char *name, *type, *help; double v; } rows[] = {
        {"vllm:num_requests_running", "gauge", "Sequences in the engine's batch.", e.running},
        {"vllm:num_requests_waiting", "gauge", "Requests waiting for a place in it.", e.waiting},
        {"vllm:kv_cache_usage_perc", "gauge", "Part of the KV blocks in use; 1 is all.", used},
        {"vllm:gpu_cache_usage_perc", "gauge", "The same by its older name.", used},
        {"vllm:prompt_tokens_total", "counter", "Prompt tokens processed, computed or found.",
         (double)(e.prompt_tokens + e.prefix_hits)},
        {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
         (double)e.prefix_queries},
        {"vllm:prefix_cache_hits_total", "counter", "Of these, those found there.", (double)e.prefix_hits},
        {"vllm:generation_tokens_total", "counter", "Tokens sampled.", (double)e.sampled_tokens},
        {"vllm:num_preemptions_total", "counter", "Sequences put back for want of KV blocks.", (double)e.preempted},
        {"lq:swapped_total", "counter", "Of these, those that came back from the host's memory.", (double)e.swapped},
        {"lq:request_failure_total", "counter", "Choices that failed in the engine.",
         (double)atomic_load(&s->ended[LQ_FAILED])},
        {"lq:kv_blocks", "gauge", "KV blocks there are.", e.kv_blocks},
        {"lq:kv_blocks_free", "gauge", "KV blocks that may be taken.", e.kv_free},
        {"lq:kv_blocks_cached", "gauge", "Of these, those of the prefix cache.", e.kv_cached},
        {"lq:steps_total", "counter", "Steps of the engine.", (double)e.steps},
        {"lq:step_seconds_total", "counter", "Time in them.", e.step_seconds},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        metric(out, s, rows[i].name, rows[i].type, rows[i].help, rows[i].v);
    about(out, "vllm:cache_config_info", "gauge", "What the KV cache is made of.");
    snprintf(label, sizeof label, ",block_size=\"%d\",num_gpu_blocks=\"%d\"", e.kv_page, e.kv_blocks);
    value(out, s, "vllm:cache_config_info", label, 1);
    about(out, "vllm:request_success_total", "counter", "Choices ended, by reason.");
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        snprintf(label, sizeof label, ",finished_reason=\"%s\"", reasons[i].name);
        value(out, s, "vllm:request_success_total", label, (double)atomic_load(&s->ended[reasons[i].finish]));
    }
    about(out, "lq:http_replies_total", "counter", "HTTP replies begun, by status.");
    for (int i = 2; i < 6; i++) {
        snprintf(label, sizeof label, ",code=\"%dxx\"", i);
        value(out, s, "lq:http_replies_total", label, (double)atomic_load(&s->replies[i]));
    }
    times(out, s, "vllm:time_to_first_token_seconds", "From a request to its first token.", &s->first);
    times(out, s, "vllm:time_per_output_token_seconds", "From a token to the next.", &s->between);
    times(out, s, "vllm:inter_token_latency_seconds", "The same by its newer name.", &s->between);
    times(out, s, "vllm:e2e_request_latency_seconds", "From a request to the end of its answer.", &s->whole);
    return true;
}

bool lq_blocks_run(request *r, const char *rest) {
    static const char *const uses[LQ_BLOCK_USES] = {"free", "cached", "held", "shared"};
    lq_text *out = &r->out;
    lq_block_map map;
    (void)rest;
    lq_engine_blocks(r->s->e, &map);
    lq_text_fmt(out, "{\"blocks\":%d,\"block_size\":%d,\"blocks_per_cell\":%d", map.blocks, map.page, map.each);
    for (int i = 0; i < LQ_BLOCK_USES; i++) lq_text_fmt(out, ",\"%s\":%d", uses[i], map.count[i]);
    for (int i = 0; i < map.cells; i++) map.cell[i] = (uint8_t)('0' + map.cell[i]);
    lq_text_fmt(out, ",\"cells\":\"%.*s\"}\n", map.cells, (const char *)map.cell);
    return true;
}
