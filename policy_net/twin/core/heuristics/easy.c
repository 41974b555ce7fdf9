/* EASY backfilling: first come, first served, and later jobs pass where the head of the queue is not delayed by it.

   Follows policy_net.baselines.fifo, with speeds that are given. */

#include "heuristics.h"

#include <math.h>

/* How long a job is expected to take from now on at its size; infinite where nobody can say. */
static double estimate(Twin *twin, int at, bool started) {
    int job = twin->present[at];
    return started || twin->in->job[job].work_known ? remaining_seconds(twin, job, requested_size(twin, job)) : INFINITY;
}

/* Whether the head and those that end after the first `ended` fit together; `then` is what runs. */
static bool fits_after(Twin *twin, int head, const int *order, int running, int ended) {
    Capacity *then = &twin->then;
    capacity_begin(twin, then);
    if (!capacity_change(twin, then, head, requested_size(twin, twin->present[head])))
        return false;
    for (int i = ended; i < running; i++)
        if (!capacity_change(twin, then, order[i], requested_size(twin, twin->present[order[i]])))
            return false;
    return true;
}

/* The earliest end of a running job after which the head fits; `then` is what runs from there on. */
static double reserve(Twin *twin, int head) {
    int running = 0;
    for (int at = 0; at < twin->presents; at++) {
        Split granted = twin->plan.granted[at];
        twin->key[at] = granted.workers + granted.ps ? estimate(twin, at, true) : NAN;
        running += !isnan(twin->key[at]);
    }
    ascending_order(twin, twin->key, twin->order); /* those without tasks last */
    for (int ended = 1; ended <= running; ended++) {
        double end = twin->key[twin->order[ended - 1]];
        if (ended < running && twin->key[twin->order[ended]] == end)
            continue; /* they end together */
        if (fits_after(twin, head, twin->order, running, ended))
            return end;
    }
    capacity_begin(twin, &twin->then);
    return INFINITY;
}

/* Start a job now if it fits and the head's reservation stands. */
static void pass(Twin *twin, int at, double head_seconds) {
    const Job *spec = &twin->in->job[twin->present[at]];
    Split size = requested_size(twin, twin->present[at]);
    if (size.workers * spec->worker_cpu + size.ps * spec->ps_cpu > twin->plan.free_cpu ||
        size.workers * spec->worker_gpu + size.ps * spec->ps_gpu > twin->plan.free_gpu)
        return;
    bool stays = estimate(twin, at, false) > head_seconds;
    if (stays && !capacity_change(twin, &twin->then, at, size))
        return;
    if (!capacity_change(twin, &twin->plan, at, size) && stays)
        capacity_change(twin, &twin->then, at, (Split){0, 0});
}

bool fifo_easy(Twin *twin) {
    Capacity *capacity = &twin->plan;
    bool waits = false;
    double head_seconds = INFINITY;
    if (!heuristic_open(twin))
        return false;
    keep_running(twin, capacity); /* sizes are all found here, before `then` is in use */
    for (int at = 0; at < twin->presents; at++) {
        int job = twin->present[at];
        Split size = requested_size(twin, job);
        if (is_running(twin, job) || !(size.workers + size.ps))
            continue;
        if (waits)
            pass(twin, at, head_seconds);
        else if (!capacity_change(twin, capacity, at, size)) {
            waits = true;
            head_seconds = reserve(twin, at);
        }
    }
    capacity_grant(twin, capacity);
    return !twin->lacks_memory;
}
