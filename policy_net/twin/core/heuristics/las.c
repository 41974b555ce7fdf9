/* Least attained service: jobs that have used few GPU-seconds go before those that have used many.

   Follows policy_net.baselines.las. */

#include "heuristics.h"

static const double LIMITS_GPU_SECONDS[] = {3600.0, 36000.0, 360000.0};

static int queue_of(const Job *spec, const State *job, Split size) {
    double attained = job->run_seconds * size.workers * (double)(spec->worker_gpu > 1 ? spec->worker_gpu : 1);
    int queue = 0;
    while (queue < 3 && LIMITS_GPU_SECONDS[queue] <= attained)
        queue++;
    return queue;
}

bool las(Twin *twin) {
    Capacity *capacity = &twin->plan;
    for (int at = 0; at < twin->presents; at++) {
        int job = twin->present[at];
        twin->key[at] = queue_of(&twin->in->job[job], &twin->job[job], requested_size(twin, job));
    }
    ascending_order(twin, twin->key, twin->order);
    capacity_begin(twin, capacity);
    serve(twin, capacity, twin->order);
    capacity_grant(twin, capacity);
    return !twin->lacks_memory;
}
