/* Jobs at their requested sizes: that much or nothing.

   Follows policy_net.baselines.decision_capacity and needs. */

#include "heuristics.h"

#include <math.h>
#include <stdlib.h>

static int within(int64_t value, int64_t least, int64_t most) {
    value = value > least ? value : least;
    return (int)(value < most ? value : most);
}

/* The largest size up to the requested one that fits the empty cluster. */
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

/* The requested size of a job, within its caps and the empty cluster; the cluster stays as it is. */
Split requested_size(Twin *twin, int job) {
    State *state = &twin->job[job];
    if (!state->sized) {
        state->requested = cut(twin, job);
        state->sized = true;
    }
    return state->requested;
}

/* Whether the job runs at its size already. */
bool is_running(Twin *twin, int job) {
    Split size = requested_size(twin, job), running = twin->job[job].running;
    return size.workers + size.ps > 0 && running.workers == size.workers && running.ps == size.ps;
}

/* Let those that run at their size already keep it, in order of arrival; the sizes of all are found by this. */
void keep_running(Twin *twin, Capacity *capacity) {
    capacity_begin(twin, capacity);
    for (int at = 0; at < twin->presents; at++)
        if (is_running(twin, twin->present[at]))
            capacity_change(twin, capacity, at, requested_size(twin, twin->present[at]));
}

/* Give the present jobs their sizes in this order of their places; those that do not fit are passed over. */
void serve(Twin *twin, Capacity *capacity, const int *order) {
    for (int i = 0; i < twin->presents; i++) {
        Split size = requested_size(twin, twin->present[order[i]]);
        if (size.workers + size.ps)
            capacity_change(twin, capacity, order[i], size);
    }
}

/* Bring up to date what every present job shows, and the speeds of its type; false if that failed. */
bool heuristic_open(Twin *twin) {
    for (int at = 0; at < twin->presents; at++) {
        int job = twin->present[at];
        job_view(&twin->in->job[job], &twin->job[job]);
        if ((twin->in->fits || twin->in->type[twin->in->job[job].type].given) && !fits_refresh(twin, (int)twin->in->job[job].type))
            return false;
    }
    return true;
}

/* Seconds to a job's end at this size; infinite where it has no speed. */
double remaining_seconds(const Twin *twin, int job, Split size) {
    double speed = twin->belief[twin->in->job[job].type].speed[cell_of(size.ps, size.workers)];
    return speed > 0.0 ? remaining_samples(twin, &twin->job[job], job) / speed : INFINITY;
}

static int sooner(const void *a, const void *b) {
    const Queued *first = a, *second = b;
    if (isnan(first->score) != isnan(second->score))
        return isnan(first->score) ? 1 : -1;
    if (first->score < second->score || first->score > second->score)
        return first->score < second->score ? -1 : 1;
    return first->index - second->index;
}

/* The places of the present jobs by rising key, ties by arrival; those without a number last. */
void ascending_order(Twin *twin, const double *key, int *order) {
    Queued *queue = twin->queue;
    for (int at = 0; at < twin->presents; at++)
        queue[at] = (Queued){key[at], at};
    qsort(queue, (size_t)twin->presents, sizeof(Queued), sooner);
    for (int at = 0; at < twin->presents; at++)
        order[at] = queue[at].index;
}
