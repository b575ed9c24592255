// emulated.h: AMX on machines that have no tiles: the files of kernels/cpu/x86/ that use them, built once more with
// LQ_TILES_EMU (their functions end in _emu instead of _amx), over tiles_emu.c. AVX-VNNI on machines that have AVX-512:
// those of *_avxvnni.c once more, with LQ_VNNI_EVEX (_evex), which only writes the instruction otherwise.
#ifndef EMULATED_H
#define EMULATED_H
#include "tests/checkkern/checkkern.h"

bool ck_emu_can(const char *isa); // "amx": the rest of what those files are compiled for; "avxvnni": AVX-512
// From here on devices of "amx" that checkkern opens (ck_open) have AVX-512 and these tiles, and those of "avxvnni"
// AVX2 and that instruction.
void ck_emu_begin(void);
void ck_emu_end(void);
bool ck_emu_is(void);
// In a list of chosen rows: those of AMX run on these tiles, those of AVX-VNNI by AVX-512's instruction.
void ck_emu_rows(const lq_ukr **chosen);

// Of the tiles: how often what was asked is nothing that a machine does, or no number that anybody meant; `first` says
// what. Whether this thread's tiles are released.
int ck_emu_faults(const char **first);
void ck_emu_forget(void);
bool ck_emu_released(void);
// The tiles themselves, against their definition, and planted faults.
void check_emu(void);
// Where a machine has tiles, these give its bits.
void check_emu_gram(lq_dev *dev);
#endif
