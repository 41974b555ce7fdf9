/* Shortest remaining time first: requested sizes by believed remaining time, and the rest to those who are first.

   Follows policy_net.baselines.srtf. */

#include "heuristics.h"

bool srtf(Twin *twin) {
    Capacity *capacity = &twin->plan;
    if (!heuristic_open(twin))
        return false;
    for (int at = 0; at < twin->presents; at++)
        twin->key[at] = remaining_seconds(twin, twin->present[at], requested_size(twin, twin->present[at]));
    ascending_order(twin, twin->key, twin->order);
    capacity_begin(twin, capacity);
    serve(twin, capacity, twin->order);
    for (int i = 0; i < twin->presents; i++) {
        int at = twin->order[i];
        const Hull *hull = hull_of(twin, twin->present[at]);
        if (!hull)
            return false;
        capacity_grow(twin, capacity, at, hull->split, hull->splits);
    }
    capacity_grant(twin, capacity);
    return !twin->lacks_memory;
}
