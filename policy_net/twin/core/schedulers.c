/* Whose decisions are taken: what decides, by the scheduler's code. */

#include "twin.h"
#include "heuristics/heuristics.h"

#include <stddef.h>

static bool (*const DECIDES[SCHEDULERS])(Twin *twin) = {
    [SET] = decide,
    [FIFO] = fifo,
    [FIFO_BACKFILL] = fifo_backfill,
    [FIFO_EASY] = fifo_easy,
    [LAS] = las,
    [SRTF] = srtf,
    [DRF] = drf,
    [DRF_PEAK] = drf_peak,
    [TETRIS] = tetris,
    [OPTIMUS] = optimus,
    [OPTIMUS_SR] = optimus_sr,
    [MARGINAL] = marginal,
    [DL2] = dl2,
};

/* What allocates tasks to all present jobs, and is false without memory; NULL: nothing has this code. */
bool (*scheduler_of(int64_t code))(Twin *twin) { return code >= 0 && code < SCHEDULERS ? DECIDES[code] : NULL; }

/* Whether the library takes the decisions of a scheduler. */
int64_t twin_has(int64_t code) { return scheduler_of(code) != NULL; }
