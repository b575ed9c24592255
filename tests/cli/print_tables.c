// print_tables.c: the tables whose rows the command line takes, "OPTION VERB NAME" a line: cli.sh holds the program's
// help, man pages and completion against them, so that a row that is added is offered without a word in tools/.
#include "quant/quant.h"
#include "runtime/lq.h"
#include <stdio.h>

int main(void) {
    const char *name;
    for (size_t i = 0; i < lq_method_count; i++) printf("--method quantize %s\n", lq_methods[i].name);
    for (int l = 0; l < LQ_LAYOUTS; l++) {
        lq_wtype type;
        lq_weight_size size;
        if (lq_wtype_parse("int8 row", &type, NULL) && lq_layout_sizes((lq_layout)l, &type, 64, 64, &size))
            printf("--layout quantize %s\n", lq_layout_names[l]);
    }
    for (size_t i = 0; (name = lq_ppl_name(i)); i++) printf("--protocol eval %s\n", name);
    for (size_t i = 0; (name = lq_kv_name(i)); i++) printf("--kv-dtype run %s\n", name);
    for (size_t i = 0; (name = lq_isa_name(i)); i++) printf("--isa run %s\n", name);
    for (size_t i = 0; (name = lq_numerics_name(i)); i++) printf("--numerics run %s\n", name);
    return 0;
}
