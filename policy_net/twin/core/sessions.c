/* Sessions: jobs of unknown work that were submitted together are about as long as each other.

   Follows policy_net.set_policy.sessions; sums are taken in the same order. */

#include "twin.h"

#include <math.h>
#include <string.h>

#define EDGE_RATIO 1.5
#define LONGEST_SECONDS 900.0
#define USUAL_SCATTER 0.223
#define USUAL_STRANGERS 0.2
#define USUAL_UNRELATED 0.3
#define LEAST_SHARE 0.01
#define MOST_SHARE 0.9
#define LARGEST_LOG_CHANGE 3.0

static double factor(double log_factor) { return exp(fmin(fmax(log_factor, -LARGEST_LOG_CHANGE), LARGEST_LOG_CHANGE)); }

static double share_of(double usual, double log_factor) { return fmin(fmax(usual * factor(log_factor), LEAST_SHARE), MOST_SHARE); }

static double normal(double deviations) { return 0.5 * (1.0 + erf(deviations / sqrt(2.0))); }

/* What one job says of its session's latent length, once a run. */
void sessions_open(Twin *twin) {
    const double *parameter = twin->in->parameter;
    double share = share_of(USUAL_STRANGERS, parameter[STRANGERS]);
    twin->unrelated_share = share_of(USUAL_UNRELATED, parameter[UNRELATED]);
    double width = log(EDGE_RATIO), scatter = USUAL_SCATTER * factor(parameter[SCATTER]);
    double deviation = sqrt(scatter * scatter + width * width / 12.0), hazard = 1.0 - 1.0 / EDGE_RATIO;
    twin->stranger_share = share;
    for (int latent = 0; latent < BINS; latent++) {
        double before = 0.0;
        for (int at = 0; at < BINS; at++) {
            double below = at < BINS - 1 ? normal((at - latent + 0.5) * width / deviation) : 1.0;
            double broad = pow(1.0 - hazard, at), ends = below - before, reached = 1.0 - before;
            twin->session_ends[latent][at] = ends;
            twin->log_ended[at][latent] = log((1.0 - share) * ends + share * (broad * (at < BINS - 1 ? hazard : 1.0)));
            twin->log_reached[at][latent] = log((1.0 - share) * reached + share * broad);
            before = below;
        }
    }
}

static int64_t gpus_of(const Job *spec) { return spec->requested_workers * (spec->worker_gpu > 1 ? spec->worker_gpu : 1); }

/* The session that a job joins, or begins; negative where there are too many. */
static int64_t joined(Twin *twin, int job) {
    Case *in = twin->in;
    const Job *spec = &in->job[job];
    int64_t gpus = gpus_of(spec), at = *in->sessions - 1;
    while (at >= 0 && in->session[at].gpus != gpus)
        at--;
    if (at < 0 || fabs(spec->submit_seconds - in->session[at].first_submit_seconds) > LONGEST_SECONDS) {
        if (*in->sessions == in->most_sessions)
            return -1;
        at = (*in->sessions)++;
        memset(&in->session[at], 0, sizeof(Session));
        in->session[at].gpus = gpus;
        in->session[at].first_submit_seconds = spec->submit_seconds;
    }
    return at;
}

/* A job was withdrawn, having trained up to this bin. */
void sessions_leave(Twin *twin, int job, int bin) {
    Case *in = twin->in;
    in->session[in->session_of[job]].withdrawn[bin] += 1.0;
    in->session_of[job] = -1;
}

/* A job has ended in this bin. */
void sessions_end(Twin *twin, int job, int bin) {
    Case *in = twin->in;
    in->session[in->session_of[job]].ended[bin] += 1.0;
    in->session_of[job] = -1;
}

/* Take in who is present, with the bin of what each has trained (negative: is not of unknown work). */
void sessions_see(Twin *twin, const int *bin) {
    Case *in = twin->in;
    twin->session_round++;
    for (int at = 0; at < twin->presents; at++) {
        int job = twin->present[at];
        if (bin[at] < 0)
            continue;
        if (in->session_of[job] < 0 && (in->session_of[job] = joined(twin, job)) < 0) {
            twin->lacks_memory = true;
            return;
        }
        Gathered *gathered = &twin->gathered[in->session_of[job]];
        if (gathered->round != twin->session_round) {
            memset(gathered, 0, sizeof *gathered);
            gathered->round = twin->session_round;
        }
        gathered->at[bin[at]] += 1.0;
    }
}

static double least(const double *trained, const double *ends, int from) {
    double trained_sum = 0.0, ends_sum = 0.0, found = INFINITY;
    for (int to = from; to < BINS; to++) {
        trained_sum += trained[to];
        ends_sum += ends[to];
        if (ends_sum > 0.0 && trained_sum / ends_sum < found)
            found = trained_sum / ends_sum;
    }
    return found;
}

static void gather(Twin *twin, const Session *session, Gathered *gathered) {
    gathered->mates = 0.0;
    for (int bin = 0; bin < BINS; bin++) {
        gathered->log[bin] = twin->log_ended[bin][BINS] + log(1.0 - twin->unrelated_share);
        gathered->mates += session->ended[bin] + (bin ? session->withdrawn[bin] + gathered->at[bin] : 0.0);
    }
    gathered->log[BINS] = log(twin->unrelated_share);
    for (int at = 0; at < BINS; at++)
        if (session->ended[at] > 0.0)
            for (int bin = 0; bin <= BINS; bin++)
                gathered->log[bin] += session->ended[at] * twin->log_ended[at][bin];
    for (int at = 0; at < BINS; at++)
        if (session->withdrawn[at] + gathered->at[at] > 0.0)
            for (int bin = 0; bin <= BINS; bin++)
                gathered->log[bin] += (session->withdrawn[at] + gathered->at[at]) * twin->log_reached[at][bin];
    gathered->known = true;
}

/* Ranks of a job at the start of the bin of what it has trained, and of the next; false where no other job of its
   session says anything. The lifetimes' own must be known. */
bool sessions_ranks(Twin *twin, int job, int bin, double *ranks) {
    Case *in = twin->in;
    Gathered *gathered = &twin->gathered[in->session_of[job]];
    if (!gathered->known)
        gather(twin, &in->session[in->session_of[job]], gathered);
    if (!(gathered->mates - (bin > 0) > 0.0))
        return false;
    if (!gathered->ranked[bin]) {
        double weight[BINS + 1], ends[BINS] = {0}, trained[BINS], largest = -INFINITY, sum = 0.0, reached = 0.0;
        for (int latent = 0; latent <= BINS; latent++) {
            weight[latent] = gathered->log[latent] - twin->log_reached[bin][latent]; /* its own training counts below */
            largest = fmax(largest, weight[latent]);
        }
        for (int latent = 0; latent <= BINS; latent++)
            sum += weight[latent] = exp(weight[latent] - largest);
        for (int latent = 0; latent <= BINS; latent++) {
            double part = weight[latent] / sum;
            for (int to = 0; to < BINS; to++)
                ends[to] += part * (latent < BINS ? twin->session_ends[latent][to] : twin->ends[to]);
        }
        for (int to = BINS - 1; to >= 0; to--) {
            ends[to] = (1.0 - twin->stranger_share) * ends[to] + twin->stranger_share * twin->ends[to];
            reached += ends[to];
            trained[to] = (reached - ends[to] / 2.0) * (twin->edge[to] - (to ? twin->edge[to - 1] : 0.0));
        }
        gathered->low[bin] = least(trained, ends, bin);
        gathered->high[bin] = least(trained, ends, bin + 1 < BINS ? bin + 1 : bin);
        gathered->ranked[bin] = true;
    }
    ranks[0] = gathered->low[bin];
    ranks[1] = gathered->high[bin];
    return true;
}
