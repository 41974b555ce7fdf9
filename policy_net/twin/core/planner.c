/* The planner: greedy grants by the slope of the best step, until nothing gains or nothing fits.

   Follows policy_net.set_policy.planner. */

#include "twin.h"

#include <math.h>

#define LEAST_REMAINING_SHARE 0.001
#define STALL_WEIGHT 4.0
#define SHARE_STEPS 1024.0

/* Without a branch: in a heap of scores no processor guesses right. */
static int before(const Queued *a, const Queued *b) {
    return (a->score > b->score) | ((a->score == b->score) & (a->index < b->index));
}

/* Let a job wait in the queue with its next step; false if it has none. */
static bool enter(Twin *twin, int at, Step step, Queued *place) {
    State *job = &twin->job[twin->present[at]];
    if (!(step.slope > 0.0))
        return false;
    bool has_tasks = job->granted.workers + job->granted.ps > 0;
    double score = step.slope * (has_tasks ? job->urgency : job->first_urgency);
    if (!twin->in->silent)
        score *= exp(job->priority + job->steepness * step.log_share);
    job->next = step;
    *place = (Queued){score, at};
    return true;
}

/* Let what stands at `parent` sink to where nothing below has a better score. */
void queue_sink(Queued *queue, int count, int parent) {
    Queued item = queue[parent];
    for (int child = 2 * parent + 1; child < count; child = 2 * parent + 1) {
        if (child + 1 < count)
            child += before(&queue[child + 1], &queue[child]);
        if (!before(&queue[child], &item))
            break;
        queue[parent] = queue[child];
        parent = child;
    }
    queue[parent] = item;
}

/* Make a queue of which the first has the best score, of equal ones the first index. */
void queue_order(Queued *queue, int count) {
    for (int parent = count / 2 - 1; parent >= 0; parent--)
        queue_sink(queue, count, parent);
}

static bool sums_fit(const Twin *twin, const Job *spec, int workers, int ps) {
    return workers * spec->worker_cpu + ps * spec->ps_cpu <= twin->plan.free_cpu &&
           workers * spec->worker_gpu + ps * spec->ps_gpu <= twin->plan.free_gpu;
}

/* The best of what still fits, by the cluster's sums; whether nodes have the capacity is seen when it is tried. */
static Step limited(const Twin *twin, int at) {
    const Job *spec = &twin->in->job[twin->present[at]];
    const State *job = &twin->job[twin->present[at]];
    const Table *table = job->steps;
    const Split *refused = twin->refusal + (int64_t)at * CELLS;
    Split granted = job->granted;
    Step best = {.slope = 0.0};
    bool none_granted = granted.workers + granted.ps == 0;
    bool least_fits = none_granted ? sums_fit(twin, spec, spec->min_workers > 1 ? (int)spec->min_workers : 1, (int)spec->min_ps)
                                : sums_fit(twin, spec, 1, 0) || (spec->uses_ps && sums_fit(twin, spec, 0, 1));
    if (!least_fits)
        return best;
    int from = cell_of(granted.ps, granted.workers);
    double spent = table_cost(table, granted.ps, granted.workers), utility = kept_utility(job, from);
    for (int ps = granted.ps; ps <= table->max_ps; ps++)
        for (int workers = granted.workers; workers <= table->max_workers; workers++) {
            if (!sums_fit(twin, spec, workers - granted.workers, ps - granted.ps))
                continue;
            bool fits = true;
            for (int i = 0; fits && i < job->refusals; i++)
                fits = ps < refused[i].ps || workers < refused[i].workers;
            int cell = cell_of(ps, workers);
            double slope = cell == from ? 0.0 : (kept_utility(job, cell) - utility) / (table_cost(table, ps, workers) - spent);
            if (fits && slope > best.slope)
                best = (Step){{workers, ps}, slope, 0.0};
        }
    if (best.slope > 0.0)
        best.log_share = log(table->speed[cell_of(best.size.ps, best.size.workers)] / table->best_speed);
    return best;
}

/* Grant a step if it fits, and say what the job's next one is. */
static Step take(Twin *twin, int at, Step step) {
    State *job = &twin->job[twin->present[at]];
    if (capacity_extend(twin, &twin->plan, twin->present[at], job->granted, step.size)) {
        job->granted = step.size;
        return job->refusals ? limited(twin, at) : kept_step(job, step.size);
    }
    /* What was refused stays so, with everything that contains it: free capacity only shrinks. */
    twin->refusal[(int64_t)at * CELLS + job->refusals++] = step.size;
    return limited(twin, at);
}

/* By how much a job without tasks is less urgent, as others end soon that need not give way for it. */
static double waiting(const Twin *twin, double restart) {
    double ends = 0.0, slowest = INFINITY;
    for (int at = 0; at < twin->presents; at++) {
        const State *job = &twin->job[twin->present[at]];
        double speed = table_speed(job->table, job->running);
        if (!(speed > 0.0))
            continue;
        double seconds = remaining_samples(twin, job, twin->present[at]) / speed;
        ends += 1.0 / seconds;
        slowest = fmin(slowest, 1.0 / seconds);
    }
    return slowest == INFINITY ? 1.0 : 1.0 / (1.0 + (ends - slowest) * restart);
}

/* Whether a job that trains keeps its size unless another is worth a resize, and what the others are worth. */
static void keep(const Twin *twin, State *job, double remaining_seconds, double resize) {
    double lasts = 1.0 / (1.0 / remaining_seconds + 1.0 / resize_interval(twin));
    job->keeps = true;
    double share = pow(lasts / (lasts + STALL_WEIGHT * resize), twin->speed_exponent);
    job->other_share = floor(share * SHARE_STEPS + 0.5) / SHARE_STEPS;
}

/* Grant tasks to all present jobs; false without memory. */
bool plan(Twin *twin, double restart) {
    double exponent = -twin->work_exponent, resize = resize_seconds(twin);
    double waits = restart > 0.0 ? waiting(twin, restart) : 1.0;
    Queued *queue = twin->queue;
    int queued = 0;
    capacity_open(twin, &twin->plan);
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        State *job = &twin->job[index];
        double samples = remaining_samples(twin, job, index);
        job->granted = (Split){0, 0};
        job->refusals = 0;
        job->at = at;
        job->urgency = job->first_urgency = pow(samples, exponent);
        double speed = table_speed(job->table, job->running);
        double here = job->steps == job->table ? speed : table_speed(job->steps, job->running);
        job->keeps = false;
        if (resize > 0.0 && here > 0.0)
            keep(twin, job, samples / here, resize);
        if (restart > 0.0 && !(speed > 0.0))
            job->first_urgency = job->urgency * waits;
        else if (restart > 0.0) {
            double share = fmax(1.0 - 2.0 * restart / (samples / speed), LEAST_REMAINING_SHARE);
            job->first_urgency = job->urgency * pow(share, exponent);
        }
        queued += enter(twin, at, kept_step(job, job->granted), &queue[queued]);
    }
    queue_order(queue, queued);
    while (queued) {
        int at = queue[0].index;
        if (!enter(twin, at, take(twin, at, twin->job[twin->present[at]].next), &queue[0]))
            queue[0] = queue[--queued];
        if (queued)
            queue_sink(queue, queued, 0);
    }
    return !twin->lacks_memory;
}
