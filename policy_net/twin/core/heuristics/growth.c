/* Optimus: the next task goes where it saves most remaining time, one task at a time.

   Follows policy_net.baselines.optimus and policy_net.throughput.probing. */

#include "heuristics.h"

#include <math.h>

#define ENOUGH_ALLOCATIONS 6
#define ENOUGH_FOR_ALLREDUCE 4

static const Split PROBES[] = {{1, 8}, {1, 2}, {4, 4}, {6, 2}, {1, 16}, {8, 8}};
static const Split ALLREDUCE_PROBES[] = {{4, 0}, {1, 0}, {8, 0}, {2, 0}};

/* Whether so many jobs as there are could have as much as this one with a split. */
static bool is_equal_share(const Twin *twin, const Job *spec, Split split) {
    int64_t cpu = split.workers * spec->worker_cpu + split.ps * spec->ps_cpu;
    int64_t gpu = split.workers * spec->worker_gpu + split.ps * spec->ps_gpu;
    return cpu <= twin->total_cpu / twin->presents && gpu <= twin->total_gpu / twin->presents;
}

static bool was_seen(const Type *type, Split split) {
    for (int64_t i = 0; i < type->cells; i++)
        if (type->cell[i].ps == split.ps && type->cell[i].workers == split.workers)
            return true;
    return false;
}

/* What the first job of a type should try, of which too little is known; 0/0 if there is nothing. */
static Split probe_for(const Twin *twin, const Job *spec) {
    const Type *type = &twin->in->type[spec->type];
    const Split *probe = spec->uses_ps ? PROBES : ALLREDUCE_PROBES;
    int count = spec->uses_ps ? sizeof PROBES / sizeof *PROBES : sizeof ALLREDUCE_PROBES / sizeof *ALLREDUCE_PROBES;
    if (type->cells >= (spec->uses_ps ? ENOUGH_ALLOCATIONS : ENOUGH_FOR_ALLREDUCE))
        return (Split){0, 0};
    for (int i = 0; i < count; i++) {
        bool trains = probe[i].workers >= spec->min_workers && probe[i].ps >= spec->min_ps;
        bool may_have = trains && probe[i].workers <= spec->max_workers && probe[i].ps <= spec->max_ps;
        if (may_have && !was_seen(type, probe[i]) && is_equal_share(twin, spec, probe[i]))
            return probe[i];
    }
    return (Split){0, 0};
}

/* What one task saves: seconds per sample, or the share of them; from one dead cell to another, nothing. */
static double saving(double before, double after, bool by_share) {
    double times[2] = {1.0 / before, 1.0 / after};
    if (isinf(times[0]))
        return isinf(times[1]) ? 0.0 : by_share ? 1.0 : INFINITY;
    return by_share ? 1.0 - times[1] / times[0] : times[0] - times[1];
}

/* Choose a job's next task; its weighted saving, 0 or less if none is worth taking. */
static double best_saving(const Twin *twin, const Job *spec, State *job, bool by_share) {
    const double *speed = twin->belief[spec->type].speed;
    Split granted = job->granted;
    int cell = cell_of(granted.ps, granted.workers);
    double by_worker = granted.workers < job->most.workers ? saving(speed[cell], speed[cell + 1], by_share) : 0.0;
    double by_ps = granted.ps < job->most.ps ? saving(speed[cell], speed[cell + SIDE], by_share) : 0.0;
    job->next_is_worker = by_worker > by_ps;
    return (by_worker > by_ps ? by_worker : by_ps) * job->urgency;
}

/* The places of the present jobs by believed time to the end with their first grants. */
static bool order_by_time(Twin *twin) {
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        Split first = first_grant(&twin->in->job[index]);
        if (first.workers && !fits_refresh(twin, (int)twin->in->job[index].type))
            return false;
        twin->key[at] = first.workers ? remaining_seconds(twin, index, first) : INFINITY;
    }
    ascending_order(twin, twin->key, twin->order);
    return true;
}

/* A first grant each, or a probe; false without memory, or without a fit. */
static bool admit(Twin *twin, int index, bool by_share) {
    const Job *spec = &twin->in->job[index];
    State *job = &twin->job[index];
    Split first = first_grant(spec), probe = job->probe;
    job->grows = false;
    if (probe.workers && capacity_take(twin, &twin->plan, index, probe.workers, probe.ps)) {
        job->granted = probe;
        return true;
    }
    if (!first.workers || !capacity_take(twin, &twin->plan, index, first.workers, first.ps))
        return true;
    if (!fits_refresh(twin, (int)spec->type))
        return false;
    int side = spec->uses_ps ? SIDE - 1 : MOST_WORKERS; /* beyond there are no speeds */
    job->granted = first;
    job->grows = true;
    job->most.workers = spec->max_workers < side ? (int)spec->max_workers : side;
    job->most.ps = spec->uses_ps ? (int)spec->max_ps : 0;
    job->urgency = by_share ? 1.0 : remaining_samples(twin, job, index);
    return true;
}

static void choose_probes(Twin *twin) {
    Case *in = twin->in;
    for (int64_t type = 0; type < in->types; type++)
        twin->belief[type].probed = false;
    for (int at = 0; at < twin->presents; at++) {
        const Job *spec = &in->job[twin->present[at]];
        Belief *belief = &twin->belief[spec->type];
        twin->job[twin->present[at]].probe = belief->probed || !in->fits ? (Split){0, 0} : probe_for(twin, spec);
        belief->probed = true;
    }
}

static bool grow(Twin *twin, bool by_share) {
    Queued *queue = twin->queue;
    int queued = 0;
    capacity_open(twin, &twin->plan);
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        job_view(&twin->in->job[index], &twin->job[index]);
        twin->job[index].granted = (Split){0, 0};
        twin->job[index].at = at;
        twin->order[at] = at;
    }
    choose_probes(twin);
    if (by_share && !order_by_time(twin))
        return false;
    for (int i = 0; i < twin->presents; i++)
        if (!admit(twin, twin->present[twin->order[i]], by_share))
            return false;
    for (int at = 0; at < twin->presents; at++) {
        State *job = &twin->job[twin->present[at]];
        double saved = job->grows ? best_saving(twin, &twin->in->job[twin->present[at]], job, by_share) : 0.0;
        if (saved > 0.0)
            queue[queued++] = (Queued){saved, at};
    }
    queue_order(queue, queued);
    while (queued) {
        int index = twin->present[queue[0].index];
        const Job *spec = &twin->in->job[index];
        State *job = &twin->job[index];
        bool worker = job->next_is_worker;
        if (capacity_take(twin, &twin->plan, index, worker, !worker)) {
            job->granted.workers += worker;
            job->granted.ps += !worker;
        } else if (worker) /* it will not fit in this decision: the job grows in the other role only */
            job->most.workers = job->granted.workers;
        else
            job->most.ps = job->granted.ps;
        queue[0].score = best_saving(twin, spec, job, by_share);
        if (!(queue[0].score > 0.0))
            queue[0] = queue[--queued];
        if (queued)
            queue_sink(queue, queued, 0);
    }
    return !twin->lacks_memory;
}

bool optimus(Twin *twin) { return grow(twin, false); }

bool optimus_sr(Twin *twin) { return grow(twin, true); }
