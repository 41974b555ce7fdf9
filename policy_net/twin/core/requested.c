/* Jobs at the size that they asked for: that much or nothing.

   Follows policy_net.baselines.requested and needs.first_grant. */

#include "twin.h"

static int within(int64_t value, int64_t least, int64_t most) {
    value = value > least ? value : least;
    return (int)(value < most ? value : most);
}

/* The largest size up to the requested one that the empty cluster holds. */
static Split cut(Twin *twin, int job) {
    const Job *spec = &twin->in->job[job];
    Split least = first_grant(spec);
    if (!least.workers)
        return least;
    int workers = within(spec->requested_workers, least.workers, spec->max_workers);
    int ps = within(spec->requested_ps, least.ps, spec->max_ps);
    for (int count = workers; count >= least.workers; count--) {
        Split size = {count, ps * count / workers};
        if (size.ps < least.ps)
            size.ps = least.ps;
        if (fits_empty(twin, job, size))
            return size;
    }
    return fits_empty(twin, job, least) ? least : (Split){0, 0};
}

/* The least with which a job trains; nothing if its caps allow no such thing. */
Split first_grant(const Job *spec) {
    int workers = spec->min_workers > 1 ? (int)spec->min_workers : 1;
    bool none = workers > spec->max_workers || spec->min_ps > spec->max_ps;
    return none ? (Split){0, 0} : (Split){workers, (int)spec->min_ps};
}

/* What a job asked for, within its caps and the empty cluster; the cluster stays as it is. */
Split requested_size(Twin *twin, int job) {
    State *state = &twin->job[job];
    if (!state->sized) {
        state->size = cut(twin, job);
        state->sized = true;
    }
    return state->size;
}

/* Whether the job holds its size already. */
bool is_running(Twin *twin, int job) {
    Split size = requested_size(twin, job), held = twin->job[job].held;
    return size.workers + size.ps > 0 && held.workers == size.workers && held.ps == size.ps;
}

/* Give the present jobs their sizes in this order of their places; those that do not fit are passed over. */
void serve(Twin *twin, Room *room, const int *order) {
    for (int i = 0; i < twin->presents; i++) {
        Split size = requested_size(twin, twin->present[order[i]]);
        if (size.workers + size.ps)
            room_change(twin, room, order[i], size);
    }
}
