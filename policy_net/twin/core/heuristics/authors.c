/* DRF, SRTF and Optimus as the code that the DL2 authors published has them.

   Follows policy_net.baselines.authors. Scores are negative where Python's heap has the least on
   top: `queue_order` has the greatest. */

#include "heuristics.h"

#include <math.h>

#define NEVER 1e30

static double dominant_share(const Twin *twin, const Job *spec, Split held) {
    int64_t cpu = held.workers * spec->worker_cpu + held.ps * spec->ps_cpu, gpu = held.workers * spec->worker_gpu + held.ps * spec->ps_gpu;
    return fmax(twin->total_cpu ? (double)cpu / (double)twin->total_cpu : 0.0, twin->total_gpu ? (double)gpu / (double)twin->total_gpu : 0.0);
}

/* Bundles by dominant share until one does not fit. */
bool drf_authors(Twin *twin) {
    Queued *queue = twin->queue;
    int queued = 0;
    authors_open(twin);
    for (int at = 0; at < twin->presents; at++)
        if (most_bundles(&twin->in->job[twin->present[at]]))
            queue[queued++] = (Queued){0.0, at};
    while (queued) {
        int at = queue[0].index;
        const Job *spec = &twin->in->job[twin->present[at]];
        if (!authors_grant(twin, at, bundle_of(spec)))
            break;
        Split held = twin->plan.held[at];
        if (held.workers < most_bundles(spec))
            queue[0].score = -dominant_share(twin, spec, held);
        else
            queue[0] = queue[--queued];
        if (queued)
            queue_sink(queue, queued, 0);
    }
    authors_decide(twin);
    return true;
}

/* Job after job to its caps, the least share of its epochs left first, until a bundle does not fit. */
bool srtf_authors(Twin *twin) {
    bool fits = true;
    authors_open(twin);
    for (int at = 0; at < twin->presents; at++)
        twin->key[at] = share_left(&twin->job[twin->present[at]]);
    ascending_order(twin, twin->key, twin->order);
    for (int i = 0; fits && i < twin->presents; i++) {
        const Job *spec = &twin->in->job[twin->present[twin->order[i]]];
        for (int count = most_bundles(spec); fits && count > 0; count--)
            fits = authors_grant(twin, twin->order[i], bundle_of(spec));
    }
    authors_decide(twin);
    return true;
}

static double seconds(const Twin *twin, int index, int ps, int workers) {
    double speed = twin->belief[twin->in->job[index].type].speed[cell_of(ps, workers)];
    return speed > 0.0 ? remaining_samples(twin, &twin->job[index], index) / speed : NEVER;
}

/* The next task of a job, and the seconds that it saves; without end as long as the job cannot train. */
static double best(const Twin *twin, int at, Split *task) {
    int index = twin->present[at];
    const Job *spec = &twin->in->job[index];
    Split held = twin->plan.held[at], worker = {1, 0}, server = {0, 1};
    *task = held.workers ? server : worker;
    if (!held.workers || (!held.ps && spec->uses_ps))
        return INFINITY;
    double now = seconds(twin, index, held.ps, held.workers), by_worker = 0.0, by_ps = 0.0;
    if (held.workers < (spec->uses_ps ? SIDE - 1 : MOST_WORKERS))
        by_worker = now - seconds(twin, index, held.ps, held.workers + 1);
    if (spec->uses_ps && held.ps < SIDE - 1)
        by_ps = now - seconds(twin, index, held.ps + 1, held.workers);
    bool serves = spec->uses_ps && by_ps >= by_worker;
    *task = serves ? server : worker;
    return serves ? by_ps : by_worker;
}

/* Task by task to the largest saving under given speeds. */
bool optimus_authors(Twin *twin) {
    Queued *queue = twin->queue;
    int queued = 0;
    if (!heuristic_open(twin))
        return false;
    authors_open(twin);
    for (int at = 0; at < twin->presents; at++)
        queue[queued++] = (Queued){best(twin, at, &twin->job[twin->present[at]].probe), at};
    while (queued && queue[0].score > 0.0) {
        int at = queue[0].index;
        const Job *spec = &twin->in->job[twin->present[at]];
        Split held = twin->plan.held[at], *task = &twin->job[twin->present[at]].probe;
        if (held.workers + task->workers > spec->max_workers || held.ps + task->ps > spec->max_ps)
            queue[0] = queue[--queued];
        else if (authors_grant(twin, at, *task))
            queue[0].score = best(twin, at, task);
        else
            break;
        if (queued)
            queue_sink(queue, queued, 0);
    }
    authors_decide(twin);
    return true;
}
