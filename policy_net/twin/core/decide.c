/* A decision of `set`: what the jobs show, what is expected of them, their step tables and tilts, and the plan.

   Follows policy_net.set_policy.policy, beliefs, restarts and the views of
   policy_net.laboratory.simulation.simulated_job. */

#include "places/places.h"

#include <math.h>
#include <stdlib.h>

#define OVERRUN_SHARE 0.01
#define LEAST_SHOWN_EPOCHS 300.0
#define LEAST_REMAINING_SHARE 0.001
#define LEAST_UNKNOWN_EPOCHS 1e-3
#define LEAST_SAMPLES 1e-9

/* Samples that are left to train, as planners count them. */
double remaining_samples(const Twin *twin, const State *job, int index) {
    double least = twin->in->job[index].work_known ? LEAST_REMAINING_SHARE * job->total_epochs : LEAST_UNKNOWN_EPOCHS;
    return fmax(fmax(job->remaining_epochs, least) * job->samples_per_epoch, LEAST_SAMPLES);
}

/* What schedulers see of a job's work. */
void job_view(const Job *spec, State *job) {
    double declared = spec->declared_epochs, reported = job->done_epochs * spec->report_factor;
    if (!spec->work_known)
        job->remaining_epochs = fmax(reported, LEAST_SHOWN_EPOCHS);
    else if (isnan(declared))
        job->remaining_epochs = spec->total_epochs - job->done_epochs;
    else
        job->remaining_epochs = fmax(declared - reported, OVERRUN_SHARE * declared);
    job->total_epochs = isnan(declared) ? spec->total_epochs : declared;
    if (!spec->work_known)
        job->total_epochs = reported + job->remaining_epochs;
    job->samples_per_epoch = spec->samples_per_epoch;
    job->max_workers = (int)spec->max_workers;
}

/* Believed samples/s at the requested size, or else at the best. */
static double reference_speed(const Twin *twin, const Job *spec) {
    const Belief *belief = &twin->belief[spec->type];
    if (spec->requested_ps < (spec->uses_ps ? SIDE : 1) && spec->requested_workers < (spec->uses_ps ? SIDE : APART)) {
        double requested = belief->speed[cell_of((int)spec->requested_ps, (int)spec->requested_workers)];
        if (requested > 0.0)
            return requested;
    }
    double fastest = belief->fastest;
    for (int workers = SIDE; !spec->uses_ps && workers <= spec->max_workers; workers++)
        fastest = fmax(fastest, belief->speed[cell_of(0, workers)]);
    return fastest;
}

/* What is expected to remain of the jobs of unknown work. */
static void expect(Twin *twin) {
    double *trained = twin->inputs, *speed = twin->scratch;
    bool any = false;
    for (int at = 0; at < twin->presents; at++) {
        const Job *spec = &twin->in->job[twin->present[at]];
        const State *job = &twin->job[twin->present[at]];
        speed[at] = spec->work_known ? 0.0 : reference_speed(twin, spec);
        trained[at] = fmax(job->total_epochs - job->remaining_epochs, 0.0) * spec->samples_per_epoch;
        any = any || speed[at] > 0.0;
    }
    lifetimes_see(twin, trained, speed);
    if (twin->lacks_memory)
        return;
    for (int at = 0; any && at < twin->presents; at++)
        if (speed[at] > 0.0) {
            State *job = &twin->job[twin->present[at]];
            double rank = lifetimes_rank(twin, twin->present[at], trained[at] / speed[at]);
            job->remaining_epochs = rank * speed[at] / job->samples_per_epoch;
        }
}

static int ascending(const void *a, const void *b) {
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof(double), ascending);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Jobs of types that nobody has seen count as long as the typical job of the others. */
static void measure_by_others(Twin *twin) {
    Case *in = twin->in;
    double *seconds = twin->inputs;
    int others = 0, unseen = 0;
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        const Job *spec = &in->job[index];
        double speed = reference_speed(twin, spec);
        if (speed <= 0.0)
            continue;
        if (!spec->work_known || twin->belief[spec->type].scale)
            seconds[others++] = remaining_samples(twin, &twin->job[index], index) / speed;
        else
            unseen++;
    }
    if (!others || !unseen)
        return;
    double typical = median(seconds, others);
    for (int64_t type = 0; type < in->types; type++) {
        int found = 0;
        for (int at = 0; at < twin->presents && !twin->belief[type].scale; at++) {
            int index = twin->present[at];
            const Job *spec = &in->job[index];
            double speed = spec->type == type && spec->work_known ? reference_speed(twin, spec) : 0.0;
            if (speed > 0.0)
                seconds[found++] = remaining_samples(twin, &twin->job[index], index) / speed;
        }
        if (!found)
            continue;
        double factor = typical / median(seconds, found);
        for (int at = 0; at < twin->presents; at++) {
            const Job *spec = &in->job[twin->present[at]];
            if (spec->type == type && spec->work_known)
                twin->job[twin->present[at]].samples_per_epoch *= factor;
        }
    }
}

/* No growth for an all-reduce job that would lose more by a restart than it gains by any size. */
static void without_futile_growth(Twin *twin, double restart) {
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        const Job *spec = &twin->in->job[index];
        State *job = &twin->job[index];
        int now = job->running.workers, most = job->max_workers;
        if (spec->uses_ps || now <= 0 || now >= most)
            continue;
        const double *speed = twin->belief[spec->type].speed;
        double best = speed[now], samples = remaining_samples(twin, job, index);
        for (int workers = now + 1; workers <= most; workers++)
            best = fmax(best, speed[workers]);
        if (speed[now] > 0.0 && samples / speed[now] - samples / best <= restart)
            job->max_workers = now;
    }
}

/* The step tables of all present jobs; false without memory. */
static bool find_tables(Twin *twin) {
    for (int at = 0; at < twin->presents; at++) {
        const Job *spec = &twin->in->job[twin->present[at]];
        State *job = &twin->job[twin->present[at]];
        job->table = table_of(twin, ANYWHERE, (int)spec->type, (int)spec->max_ps, job->max_workers, (int)spec->min_ps, (int)spec->min_workers);
        if (!job->table)
            return false;
        job->steps = job->table;
        job->priority = job->steepness = 0.0;
    }
    return true;
}

/* The tables of the steps, with what is believed of the fewest nodes in them; false without memory. */
static bool find_steps(Twin *twin) {
    for (int at = 0; at < twin->presents; at++) {
        const Job *spec = &twin->in->job[twin->present[at]];
        State *job = &twin->job[twin->present[at]];
        job->steps = table_of(twin, (int)spec->worker_class, (int)spec->type, (int)spec->max_ps, job->max_workers, (int)spec->min_ps,
                              (int)spec->min_workers);
        if (!job->steps)
            return false;
    }
    return true;
}

/* Allocate tasks to all present jobs; false without memory. */
bool decide(Twin *twin) {
    Case *in = twin->in;
    bool scales = true;
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        job_view(&in->job[index], &twin->job[index]);
        twin->job[index].shown_epochs = twin->job[index].remaining_epochs;
        if (!belief_refresh(twin, (int)in->job[index].type))
            return false;
        scales = scales && twin->belief[in->job[index].type].scale;
    }
    double restart = restart_seconds(twin);
    if (in->learns) {
        expect(twin);
        if (twin->lacks_memory)
            return false;
        if (!scales)
            measure_by_others(twin);
        if (restart > 0.0)
            without_futile_growth(twin, restart);
    }
    if (!find_tables(twin) || (prices_set(twin) && !find_tables(twin)))
        return false;
    if (in->plans_places && !find_steps(twin))
        return false;
    if (!in->silent)
        residual_tilts(twin);
    return plan(twin, restart);
}
