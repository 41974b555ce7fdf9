/* The marginal-gain planner: a greedy over the hulls of all jobs.

   Follows policy_net.baselines.marginal. */

#include "heuristics.h"

#include <math.h>

/* Walk the segments of all jobs by falling score until nothing more fits; false without memory. */
bool marginal(Twin *twin) {
    Capacity *capacity = &twin->plan;
    Queued *queue = twin->queue;
    int queued = 0;
    if (!heuristic_open(twin))
        return false;
    capacity_begin(twin, capacity);
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        State *job = &twin->job[index];
        const Hull *hull = hull_of(twin, index);
        if (!hull)
            return false;
        job->segment = 0;
        job->urgency = pow(remaining_samples(twin, job, index), -FAIRNESS_EXPONENT);
        if (hull->segments)
            queue[queued++] = (Queued){hull->segment[0].slope * job->urgency, at};
    }
    queue_order(queue, queued);
    while (queued) {
        int at = queue[0].index;
        State *job = &twin->job[twin->present[at]];
        const Hull *hull = hull_of(twin, twin->present[at]);
        bool more = capacity_change(twin, capacity, at, hull->segment[job->segment].end);
        if (!more) /* the step is too large for what is left: the fastest split that fits, and the job is done */
            capacity_settle(twin, capacity, at, hull->split, hull->splits);
        if (more && ++job->segment < hull->segments)
            queue[0].score = hull->segment[job->segment].slope * job->urgency;
        else
            queue[0] = queue[--queued];
        if (queued)
            queue_sink(queue, queued, 0);
    }
    capacity_grant(twin, capacity);
    return !twin->lacks_memory;
}
