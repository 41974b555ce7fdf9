/* The event engine: show the state, take a decision, run on to the next one.

   Follows policy_net.laboratory.simulation.engine, simulated_job, environment, noise, metrics and replay. */

#include "places/places.h"

#include <math.h>
#include <stddef.h>

#define ROUNDING 1e-9
#define PI 3.14159265358979323846

static double next_arrival(const Twin *twin) {
    return twin->arrived < twin->in->jobs ? twin->in->job[twin->arrived].submit_seconds : INFINITY;
}

static double slot_start(double time, double slot_seconds, bool after) {
    double number = floor(time / slot_seconds) - 1;
    while (number * slot_seconds < time || (after && number * slot_seconds <= time))
        number += 1;
    return number * slot_seconds;
}

static double on_arrival(const Twin *twin, double arrival, double earliest) {
    return twin->in->on_events ? fmax(arrival, earliest) : slot_start(arrival, twin->in->slot_seconds, false);
}

static double after_decision(const Twin *twin, double now, double completion) {
    const Case *in = twin->in;
    if (!in->on_events)
        return slot_start(now, in->slot_seconds, true);
    double event = fmax(fmin(completion, next_arrival(twin)), now + in->debounce_seconds);
    return fmin(in->next_change_seconds, fmin(event, now + in->slot_seconds));
}

/* The decision that the first node brings to a cluster that had none left. */
static double on_nodes(const Twin *twin) {
    double back = twin->in->next_change_seconds;
    return twin->in->on_events ? back : slot_start(back, twin->in->slot_seconds, false);
}

static void admit(Twin *twin, double until) {
    while (next_arrival(twin) <= until) {
        twin->job[twin->arrived].trained_until = twin->in->job[twin->arrived].submit_seconds;
        twin->present[twin->presents++] = twin->arrived++;
    }
}

static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

/* The factor on a job's speed after one decision: lognormal, a hash of job and decision. */
static double noise_factor(uint64_t key, uint64_t decision, double variance) {
    uint64_t first = mix(key + (2 * decision + 1) * 0x9E3779B97F4A7C15u), second = mix(key + (2 * decision + 2) * 0x9E3779B97F4A7C15u);
    double radius = sqrt(-2.0 * log((double)((first >> 11) + 1) * 0x1p-53));
    double normal = radius * cos(2.0 * PI * (double)(second >> 11) * 0x1p-53);
    return exp(sqrt(variance) * normal - variance / 2.0);
}

/* Give a job the size that was granted; one that runs on with another size or elsewhere, or runs again, may have to pause. */
static void apply_grant(Twin *twin, int index) {
    const Case *in = twin->in;
    const Job *spec = &in->job[index];
    State *job = &twin->job[index];
    bool could_train = job->can_train;
    bool can_train = job->granted.workers >= spec->min_workers && job->granted.ps >= spec->min_ps;
    bool alike = job->granted.workers == job->running.workers && job->granted.ps == job->running.ps;
    if (can_train == could_train && alike && !(job->moved && can_train))
        return;
    job->can_train = can_train;
    job->running = job->granted;
    if (!can_train) {
        if (could_train) {
            job->checkpoint_epochs = job->done_epochs;
            job->since_checkpoint_seconds = 0.0;
        }
        job->pause_seconds = 0.0;
    } else if (could_train) {
        twin->out->resizes++;
        job->pause_seconds = fmax(job->pause_seconds, in->resize_seconds);
    } else if (!isnan(in->start_at[index])) {
        twin->out->resumes++;
        job->pause_seconds = in->resume_seconds;
    } else
        job->pause_seconds = in->start_seconds;
}

static double true_speed(const Twin *twin, int index) {
    const Case *in = twin->in;
    const Job *spec = &in->job[index];
    const State *job = &twin->job[index];
    if (!job->can_train)
        return 0.0;
    double speed = in->type[spec->trains_as].truth[cell_of(job->running.ps, job->running.workers)] * spec->speed_factor;
    if (speed && in->noise_variance)
        speed *= noise_factor(spec->noise_key, (uint64_t)twin->out->decisions, in->noise_variance);
    if (speed && in->distance_matters)
        speed *= in->type[spec->trains_as].relative[job->running.workers * APART + job->apart];
    return speed;
}

static double needed_seconds(const Twin *twin, int index) {
    const Job *spec = &twin->in->job[index];
    const State *job = &twin->job[index];
    double left_samples = (spec->total_epochs - job->done_epochs) * spec->samples_per_epoch;
    return job->speed ? left_samples / job->speed : INFINITY;
}

static void checkpoint_regularly(const Twin *twin, const Job *spec, State *job, double seconds) {
    double every = twin->in->checkpoint_seconds, since = job->since_checkpoint_seconds + seconds;
    if (since >= every) {
        since = fmod(since, every);
        job->checkpoint_epochs = job->done_epochs - job->speed * since / spec->samples_per_epoch;
    }
    job->since_checkpoint_seconds = since;
}

/* Pause and train up to where it stops, or to the end if that comes first. */
static void run(Twin *twin, int index, double now, double until) {
    const Job *spec = &twin->in->job[index];
    State *job = &twin->job[index];
    job->finished = false;
    job->seconds = job->samples = job->epochs = job->paused = 0.0;
    if (!job->can_train)
        return;
    if (job->pause_seconds) {
        job->paused = fmin(job->pause_seconds, until - now);
        job->pause_seconds = now + job->pause_seconds <= until ? 0.0 : job->pause_seconds - job->paused;
        twin->out->pause_seconds += job->paused;
    }
    double needed = needed_seconds(twin, index), seconds = until - now - job->paused;
    job->finished = needed <= seconds * (1.0 + ROUNDING) || now + job->paused + needed <= until;
    if (job->finished) {
        seconds = fmin(needed, seconds);
        job->epochs = spec->total_epochs - job->done_epochs;
        job->done_epochs = spec->total_epochs;
        twin->in->end_at[index] = now + job->paused + seconds;
        twin->out->ended_jobs++;
    } else {
        job->epochs = job->speed * seconds / spec->samples_per_epoch;
        job->done_epochs += job->epochs;
        if (twin->in->checkpoint_seconds)
            checkpoint_regularly(twin, spec, job, seconds);
    }
    job->seconds = seconds;
    job->run_seconds += job->paused + seconds;
    if (isnan(twin->in->start_at[index]))
        twin->in->start_at[index] = now;
    job->epochs *= spec->report_factor;
    job->samples = job->epochs * spec->samples_per_epoch;
}

static int64_t gpus_of(const Job *spec, Split size) { return size.workers * spec->worker_gpu + size.ps * spec->ps_gpu; }

/* What policies and metrics make of what happened; whether anything did. */
static bool observe(Twin *twin, double now) {
    Case *in = twin->in;
    bool trained = false, believes = in->learns || in->fits;
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        State *job = &twin->job[index];
        if (job->runs && believes)
            belief_observe(twin, (int)in->job[index].type, job->running, samples_together(twin, index), job->seconds);
    }
    if (in->learns && in->plans_places && !places_observe(twin))
        twin->lacks_memory = true;
    if (in->learns)
        restarts_observe(twin);
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        State *job = &twin->job[index];
        if (!job->runs)
            continue;
        if (job->finished && in->learns)
            lifetimes_end(twin, index, job->samples);
        trained = trained || job->epochs > 0 || job->paused > 0;
        if (job->epochs > 0) {
            in->longest_gap[index] = fmax(in->longest_gap[index], now - job->trained_until);
            job->trained_until = now + job->paused + job->seconds;
            twin->out->training_gpu_seconds += (double)gpus_of(&in->job[index], job->running) * job->seconds;
        }
    }
    return trained;
}

/* While no node is up there is nothing to decide: every job waits for the first that comes; false if that failed. */
static bool await_nodes(Twin *twin) {
    while (!twin->in->nodes) {
        twin->out->time_seconds = on_nodes(twin);
        if (!nodes_advance(twin, twin->out->time_seconds))
            return false;
        admit(twin, twin->out->time_seconds);
        for (int at = 0; at < twin->presents; at++) {
            State *job = &twin->job[twin->present[at]];
            job->granted = (Split){0, 0};
            job->moved = false;
            apply_grant(twin, twin->present[at]);
        }
    }
    return true;
}

/* Go to the next decision: drop ended jobs, admit arrived ones, skip time without any job or node; false if that failed. */
static bool move_to(Twin *twin, double until) {
    double earliest = twin->out->time_seconds + twin->in->debounce_seconds, last_end = 0.0;
    int kept = 0;
    for (int at = 0; at < twin->presents; at++)
        if (isnan(twin->in->end_at[twin->present[at]]))
            twin->present[kept++] = twin->present[at];
    twin->presents = kept;
    twin->out->time_seconds = until;
    admit(twin, until);
    if (!twin->presents && twin->arrived < twin->in->jobs) {
        twin->out->time_seconds = on_arrival(twin, next_arrival(twin), earliest);
        if (!nodes_advance(twin, twin->out->time_seconds))
            return false;
        admit(twin, twin->out->time_seconds);
    } else if (!twin->presents) {
        for (int64_t index = 0; index < twin->in->jobs; index++)
            last_end = fmax(last_end, twin->in->end_at[index]);
        twin->out->time_seconds = last_end;
        twin->out->status = FINISHED;
    }
    if (twin->presents && !await_nodes(twin))
        return false;
    twin->out->present = twin->presents;
    twin->out->first = twin->presents ? twin->present[0] : -1;
    return true;
}

/* Wait for the first job. */
void engine_begin(Twin *twin) {
    twin->out->time_seconds = on_arrival(twin, next_arrival(twin), 0.0);
    bool goes_on = nodes_advance(twin, twin->out->time_seconds);
    admit(twin, twin->out->time_seconds);
    if (!goes_on || !await_nodes(twin))
        twin->out->status = OUT_OF_MEMORY;
}

/* Whether the run is given up after a decision: nothing changes any more, or jobs lose again and again what they train. */
static void watch(Twin *twin, bool may_change, bool ended, int present, int first) {
    Case *in = twin->in;
    Standing *out = twin->out;
    out->waiting_decisions = may_change ? 0 : out->waiting_decisions + 1;
    out->idle_decisions = may_change || in->nodes_pending ? 0 : out->idle_decisions + 1;
    if (ended) {
        out->losing_decisions = 0;
        out->lost_before_seconds = out->lost_training_seconds;
    } else if (out->lost_training_seconds > out->lost_before_seconds)
        out->losing_decisions++;
    bool idles = out->idle_decisions >= in->most_idle || out->waiting_decisions >= in->most_waiting;
    if (!idles && out->losing_decisions < in->most_waiting)
        return;
    out->status = idles ? NO_PROGRESS : LOSES;
    out->present = present;
    out->first = first;
}

/* Decide, and run on to the next decision. */
void engine_step(Twin *twin) {
    Case *in = twin->in;
    Standing *out = twin->out;
    double now = out->time_seconds, completion = INFINITY;
    bool may_change = twin->arrived < in->jobs;
    int first = twin->present[0], present = twin->presents;
    int64_t ended = out->ended_jobs;
    bool decided = twin->decide(twin);
    if (decided && in->distance_matters)
        decided = in->plans_places ? place_as_planned(twin) : place(twin, NULL);
    if (!decided) {
        out->status = OUT_OF_MEMORY;
        return;
    }
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        State *job = &twin->job[index];
        apply_grant(twin, index);
        job->runs = job->can_train || job->running.workers + job->running.ps > 0;
        if (!job->runs)
            continue;
        out->unusable_allocations += !job->can_train;
        job->speed = true_speed(twin, index);
        completion = fmin(completion, now + job->pause_seconds + needed_seconds(twin, index));
    }
    double until = after_decision(twin, now, completion);
    if (!nodes_change(twin, until)) {
        out->status = OUT_OF_MEMORY;
        return;
    }
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        State *job = &twin->job[index];
        if (!job->runs)
            continue;
        run(twin, index, now, twin->changed ? job->stop : until);
        bool ends_free = in->on_events && job->finished; /* before it could lose anything */
        out->gpu_seconds += (double)gpus_of(&in->job[index], job->running) * ((ends_free ? in->end_at[index] : until) - now);
        if (ends_free && twin->changed)
            out->gpu_seconds += job->lost_gpu_seconds;
    }
    out->decisions++;
    out->allocated_until_seconds = until;
    out->available_gpu_seconds = in->gpu_seconds_before + (double)twin->total_gpu * (until - in->changed_at_seconds);
    may_change = observe(twin, now) || may_change;
    nodes_lose(twin);
    if (twin->lacks_memory || !move_to(twin, until)) {
        out->status = OUT_OF_MEMORY;
        return;
    }
    watch(twin, may_change, out->ended_jobs > ended, present, first);
}
