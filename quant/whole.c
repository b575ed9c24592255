// whole.c: where a model runs that has to be there whole, all of its layers at once, as where it writes text or its
// types or layers are tried: on the device that is lent, if that has room for it, else on a CPU. Owns nothing.
#include "quant/pass.h"
#include <stdio.h>

static const size_t BESIDE = (size_t)64 << 20; // what the device keeps for itself, and rounding takes

bool lq_whole_on(const lq_quant_opts *o, const char *in, size_t more, lq_dev **out, lq_err *err) {
    lq_dev *far = lq_lend_far(o->lent);
    lq_ckpt *c;
    *out = NULL;
    if (!far) return true;
    if (!lq_ckpt_open(in, &c, err)) return false;
    const size_t bytes = lq_ckpt_file_bytes(c), room = far->ops.room(far);
    lq_ckpt_close(c);
    // Packed, weights may take more.
    if (bytes < room && bytes / 8 + more + BESIDE < room - bytes) *out = far;
    return true;
}

void lq_whole_words(const lq_quant_opts *o, const lq_dev *on, char *out, size_t size) {
    const lq_dev *far = lq_lend_far(o->lent);
    if (on) snprintf(out, size, " on %s", on->name);
    else if (far) snprintf(out, size, " on a CPU, as %s has no room for all of the model", far->name);
    else snprintf(out, size, "%s", "");
}

bool lq_whole_isa(const lq_dev *on, char *out, size_t size, lq_err *err) {
    lq_dev *dev;
    if (!lq_dev_open("cpu", &(lq_dev_opts){.threads = 1}, &dev, err)) return false;
    if (on) snprintf(out, size, "%s, %s, %s", dev->isa, on->isa, lq_dtypes[on->act].name);
    else snprintf(out, size, "%s", dev->isa);
    lq_dev_close(dev);
    return true;
}
