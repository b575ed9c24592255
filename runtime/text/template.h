// template.h: chat templates of checkpoints, for the rooms above text/. What a program sees of them is in lq.h.
#ifndef LQ_TEMPLATE_H
#define LQ_TEMPLATE_H
#include "formats/ckpt.h"
#include "runtime/lq.h"

// The template of a checkpoint: chat_template.jinja, else what tokenizer_config.json or chat_template.json has. `name`
// NULL: its only one, or "tool_use" where there are tools, else "default". `told` (borrowed) begins the errors of
// renders; NULL: the file.
bool lq_template_from(lq_ckpt *c, const char *name, const char *told, lq_template **out, lq_err *err);
#endif
