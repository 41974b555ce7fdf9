/* Lengths of jobs of unknown work and ranks by what a job has trained; and what restarts and resizes cost.

   Follows policy_net.set_policy.beliefs.Lifetimes and restarts. */

#include "twin.h"

#include <math.h>

#define FIRST_EDGE_SECONDS 10.0
#define EDGE_RATIO 1.5
#define PRIOR_JOBS 8.0
#define PRIOR_TAIL 1.0
#define PRIOR_FIRST_SHARE 0.1
#define WEIGHT_OF_NEWEST 0.1
#define MOST_RESIZES 100.0
#define LEAST_RESIZE_SECONDS 5.0
#define USUAL_INTERVAL 3600.0

static double start(const Twin *twin, int bin) { return bin ? twin->edge[bin - 1] : 0.0; }

static int bin_of(const Twin *twin, double seconds) {
    int bin = 0;
    while (bin < BINS - 1 && twin->edge[bin] < seconds)
        bin++;
    return bin;
}

/* The bins' upper edges, once a run. */
void lifetimes_open(Twin *twin) {
    for (int bin = 0; bin < BINS; bin++)
        twin->edge[bin] = FIRST_EDGE_SECONDS * pow(EDGE_RATIO, bin);
}

static void pass_through(Twin *twin, int bins) {
    for (int bin = 0; bin < bins; bin++)
        twin->in->passed[bin] += 1.0;
}

/* Learn which jobs of unknown work there are now: of the present ones in order, the samples trained and the reference
   speed (0: none). Who is missing without having ended was withdrawn. */
void lifetimes_see(Twin *twin, const double *trained, const double *speed) {
    Case *in = twin->in;
    for (int at = 0; at < twin->presents; at++) {
        int job = twin->present[at];
        if (in->present_speed[job] > 0.0 && !(speed[at] > 0.0)) {
            int bin = bin_of(twin, in->present_samples[job] / in->present_speed[job]);
            pass_through(twin, bin);
            if (in->with_sessions)
                sessions_leave(twin, job, bin);
        }
        in->present_speed[job] = speed[at] > 0.0 ? speed[at] : 0.0;
        in->present_samples[job] = trained[at];
        twin->bin[at] = speed[at] > 0.0 ? bin_of(twin, trained[at] / speed[at]) : -1;
    }
    if (in->with_sessions)
        sessions_see(twin, twin->bin);
    twin->ranks_known = false;
}

/* A job has ended, this many samples after it was last present. */
void lifetimes_end(Twin *twin, int job, double samples) {
    Case *in = twin->in;
    if (!(in->present_speed[job] > 0.0))
        return;
    int bin = bin_of(twin, (in->present_samples[job] + samples) / in->present_speed[job]);
    pass_through(twin, bin);
    in->ended[bin] += 1.0;
    if (in->with_sessions)
        sessions_end(twin, job, bin);
    in->present_speed[job] = 0.0;
    twin->ranks_known = false;
}

static void compute_ranks(Twin *twin) {
    const Case *in = twin->in;
    double at[BINS] = {0}, hazard[BINS], reached[BINS], present = 0.0, before = 0.0, left = 1.0;
    for (int i = 0; i < twin->presents; i++) {
        int job = twin->present[i];
        if (in->present_speed[job] > 0.0) {
            at[bin_of(twin, in->present_samples[job] / in->present_speed[job])] += 1.0;
            present += 1.0;
        }
    }
    for (int bin = 0; bin < BINS; bin++) {
        before += at[bin];
        double passed = in->passed[bin] + (present - before);
        double prior = bin ? 1.0 - pow(EDGE_RATIO, -PRIOR_TAIL) : PRIOR_FIRST_SHARE;
        hazard[bin] = bin < BINS - 1 ? (in->ended[bin] + PRIOR_JOBS * prior) / (in->ended[bin] + passed + PRIOR_JOBS) : 1.0;
        reached[bin] = left;
        twin->ends[bin] = left * hazard[bin];
        twin->log_ended[bin][BINS] = log(twin->ends[bin]);
        twin->log_reached[bin][BINS] = log(left);
        left *= 1.0 - hazard[bin];
    }
    for (int bin = 0; bin < BINS; bin++) {
        double ends = 0.0, trained = 0.0, least = INFINITY;
        for (int to = bin; to < BINS; to++) {
            ends += reached[to] * hazard[to];
            trained += reached[to] * (twin->edge[to] - start(twin, to)) * (1.0 - hazard[to] / 2.0);
            if (ends > 0.0 && trained / ends < least)
                least = trained / ends;
        }
        twin->ranks[bin] = least;
    }
    twin->ranks_known = true;
}

/* The least training to be expected per completion, by a job that has trained for this long. */
double lifetimes_rank(Twin *twin, int job, double seconds) {
    if (!twin->ranks_known)
        compute_ranks(twin);
    int bin = bin_of(twin, seconds);
    double ranks[2];
    if (!twin->in->with_sessions || !sessions_ranks(twin, job, bin, ranks)) {
        ranks[0] = twin->ranks[bin];
        ranks[1] = twin->ranks[bin + 1 < BINS ? bin + 1 : bin];
    }
    if (bin + 1 >= BINS)
        return ranks[0];
    double share = (seconds - start(twin, bin)) / (twin->edge[bin] - start(twin, bin));
    return ranks[0] * exp(share * log(ranks[1] / ranks[0]));
}

/* What a restart costs at the mean; where none has come to its end yet, the longest so far. */
double restart_seconds(const Twin *twin) {
    const Case *in = twin->in;
    if (!in->learns)
        return 0.0;
    if (*in->restarts_seen)
        return *in->restart_mean_seconds;
    double longest = 0.0;
    for (int at = 0; at < twin->presents; at++)
        longest = fmax(longest, in->starting_seconds[twin->present[at]]);
    return longest;
}

/* What a resize costs at the mean; 0 where none has come to its end yet, or next to nothing was seen. */
double resize_seconds(const Twin *twin) {
    const double *resized = twin->in->resized;
    double seconds = twin->in->learns && resized[RESIZES] > 0.0 ? resized[RESIZE_SECONDS] / resized[RESIZES] : 0.0;
    return seconds < LEAST_RESIZE_SECONDS ? 0.0 : seconds;
}

/* After how long a job is resized again, as if one resize an hour had been seen before. */
double resize_interval(const Twin *twin) {
    const double *resized = twin->in->resized;
    return (resized[OBSERVED_SECONDS] + USUAL_INTERVAL) / (resized[RESIZES] + 1.0);
}

/* Learn from a job that has trained since it was started: has it another size, and does it train again? */
static void observe_training(Case *in, int job, const State *state) {
    int64_t size = cell_of(state->running.ps, state->running.workers);
    double paused = fmax(in->starting_seconds[job], 0.0);
    in->resized[OBSERVED_SECONDS] += state->paused + state->seconds;
    in->starting_seconds[job] = -1.0;
    if (size == in->trained_size[job])
        return;
    paused += state->paused;
    if (state->seconds <= 0.0) {
        in->starting_seconds[job] = paused;
        return;
    }
    in->trained_size[job] = size;
    in->resized[RESIZES] += 1.0;
    in->resized[RESIZE_SECONDS] += paused;
    if (in->resized[RESIZES] >= MOST_RESIZES)
        for (int i = RESIZES; i <= OBSERVED_SECONDS; i++)
            in->resized[i] /= 2.0;
}

/* Learn from what every job did between two decisions. */
void restarts_observe(Twin *twin) {
    Case *in = twin->in;
    for (int at = 0; at < twin->presents; at++) {
        int job = twin->present[at];
        const State *state = &twin->job[job];
        if (!state->runs || state->finished || !state->running.workers) {
            in->training[job] = 0;
            in->starting_seconds[job] = -1.0;
        } else if (!in->training[job]) {
            double paused = fmax(in->starting_seconds[job], 0.0) + state->paused;
            in->starting_seconds[job] = state->seconds <= 0.0 ? paused : -1.0;
            if (state->seconds <= 0.0)
                continue;
            in->training[job] = 1;
            in->trained_size[job] = cell_of(state->running.ps, state->running.workers);
            ++*in->restarts_seen;
            double weight = fmax(1.0 / (double)*in->restarts_seen, WEIGHT_OF_NEWEST);
            *in->restart_mean_seconds += weight * (paused - *in->restart_mean_seconds);
        } else
            observe_training(in, job, state);
    }
}
