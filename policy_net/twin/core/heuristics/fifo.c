/* First come, first served, at the requested size; with backfilling, later jobs pass those that do not fit.

   Follows policy_net.baselines.fifo. */

#include "heuristics.h"

static bool in_turn(Twin *twin, bool backfill) {
    Capacity *capacity = &twin->plan;
    keep_running(twin, capacity);
    for (int at = 0; at < twin->presents; at++) {
        int job = twin->present[at];
        Split size = requested_size(twin, job);
        if (is_running(twin, job) || !(size.workers + size.ps))
            continue;
        if (!capacity_change(twin, capacity, at, size) && !backfill)
            break;
    }
    capacity_grant(twin, capacity);
    return !twin->lacks_memory;
}

bool fifo(Twin *twin) { return in_turn(twin, false); }

bool fifo_backfill(Twin *twin) { return in_turn(twin, true); }
