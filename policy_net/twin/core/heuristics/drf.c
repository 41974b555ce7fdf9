/* Fair sharing: one bundle a round to every job that still takes one, up to its caps or to its believed peak.

   Follows policy_net.baselines.drf. */

#include "heuristics.h"

#include <string.h>

static int first_workers(const Job *spec) { return spec->min_workers > 1 ? (int)spec->min_workers : 1; }

/* How many workers a job may come to have by whole bundles within its caps; 0 if not even its first grant. */
static int most_workers(const Job *spec) {
    int64_t most = spec->max_workers;
    if (spec->uses_ps) {
        int64_t by_ps = first_workers(spec) + spec->max_ps - spec->min_ps;
        if (spec->min_ps > spec->max_ps)
            return 0;
        most = most < by_ps ? most : by_ps;
    }
    return most >= spec->min_workers ? (int)most : 0;
}

/* The workers of the fastest allocation on the way from the first grant by bundles; ties: the fewest. */
static int bundle_peak(const Job *spec, const double *speed) {
    int first = first_workers(spec), most = most_workers(spec), peak = first;
    if (!most)
        return 0;
    double fastest = speed[cell_of((int)spec->min_ps, first)];
    for (int more = 1; more <= most - first; more++) {
        double here = speed[cell_of((spec->uses_ps ? more : 0) + (int)spec->min_ps, first + more)];
        if (here > fastest) {
            fastest = here;
            peak = first + more;
        }
    }
    return peak;
}

static int peak_of(Twin *twin, int job) {
    const Job *spec = &twin->in->job[job];
    State *state = &twin->job[job];
    const Belief *belief = &twin->belief[spec->type];
    if (state->peak_version != belief->version) {
        state->peak_version = belief->version;
        state->peak = bundle_peak(spec, belief->speed);
    }
    return state->peak;
}

/* Who takes part in the first round: with a bundle, or with more and later again. */
static void enter(const Job *spec, Sharing *one, int most) {
    *one = (Sharing){.takes = most > 0, .last = most, .bundle_workers = 1, .bundle_ps = spec->uses_ps != 0};
    if (!most || (spec->min_workers <= 1 && (!spec->uses_ps || spec->min_ps == 1)))
        return;
    one->starts = true;
    one->last = 0;
    one->bundle_workers = (int)spec->min_workers;
    one->bundle_ps = (int)spec->min_ps;
}

/* Until which round nobody stops or joins, once those that join now have; negative when nobody takes part any more. */
static int quiet_until(Twin *twin, int round) {
    int until = 0;
    bool any = false;
    for (int at = 0; at < twin->presents; at++) {
        Sharing *one = &twin->sharing[at];
        if (one->join == round) {
            one->join = 0;
            one->takes = true;
        }
        int stops = one->takes ? one->last : one->join - 1;
        if ((one->takes || one->join) && (!any || stops < until)) {
            any = true;
            until = stops;
        }
    }
    return any ? until : -1;
}

/* Rounds that fit for certain, taken at once; how many. */
static int whole_rounds(Twin *twin, int most) {
    memset(twin->per_round, 0, sizeof(int64_t) * (size_t)twin->in->classes);
    bool any = false;
    for (int at = 0; at < twin->presents; at++) {
        const Sharing *one = &twin->sharing[at];
        const Job *spec = &twin->in->job[twin->present[at]];
        if (!one->takes)
            continue;
        any = true;
        twin->per_round[spec->worker_class] += one->bundle_workers;
        twin->per_round[spec->ps_class] += one->bundle_ps;
    }
    return any && most > 0 ? (int)capacity_rounds(twin, &twin->plan, twin->per_round, most) : 0;
}

/* One round, job by job. Capacity only shrinks, so a job that did not fit once is out for the rest of this decision. */
static void single_round(Twin *twin, int round) {
    for (int at = 0; at < twin->presents; at++) {
        Sharing *one = &twin->sharing[at];
        if (!one->takes)
            continue;
        bool fits = capacity_take(twin, &twin->plan, twin->present[at], one->bundle_workers, one->bundle_ps);
        if (fits)
            one->workers = round;
        one->takes = fits && round < one->last;
    }
}

/* First grants that are more than a bundle: their jobs come again when the others have as many workers. */
static void after_first_round(Twin *twin, const int *most) {
    for (int at = 0; at < twin->presents; at++) {
        Sharing *one = &twin->sharing[at];
        const Job *spec = &twin->in->job[twin->present[at]];
        if (!one->starts || !one->workers)
            continue;
        one->workers = first_workers(spec);
        one->last = most[at];
        one->bundle_workers = 1;
        one->bundle_ps = spec->uses_ps != 0;
        if (one->workers < one->last)
            one->join = one->workers + 1;
    }
}

static bool share_in_rounds(Twin *twin, const int *most) {
    capacity_begin(twin, &twin->plan);
    for (int at = 0; at < twin->presents; at++)
        enter(&twin->in->job[twin->present[at]], &twin->sharing[at], most[at]);
    int until;
    for (int round = 1; (until = quiet_until(twin, round)) >= 0; round++) {
        int whole = whole_rounds(twin, until - round + 1);
        if (!whole) {
            single_round(twin, round);
            if (round == 1)
                after_first_round(twin, most);
            continue;
        }
        round += whole - 1;
        for (int at = 0; at < twin->presents; at++) {
            Sharing *one = &twin->sharing[at];
            if (one->takes)
                one->workers = round;
            one->takes = one->takes && one->last > round;
        }
    }
    for (int at = 0; at < twin->presents; at++) {
        const Job *spec = &twin->in->job[twin->present[at]];
        int workers = twin->sharing[at].workers, ps = spec->uses_ps ? workers - first_workers(spec) + (int)spec->min_ps : 0;
        twin->plan.granted[at] = workers ? (Split){workers, ps} : (Split){0, 0};
    }
    capacity_grant(twin, &twin->plan);
    return !twin->lacks_memory;
}

bool drf(Twin *twin) {
    for (int at = 0; at < twin->presents; at++)
        twin->order[at] = most_workers(&twin->in->job[twin->present[at]]);
    return share_in_rounds(twin, twin->order);
}

bool drf_peak(Twin *twin) {
    if (!heuristic_open(twin))
        return false;
    for (int at = 0; at < twin->presents; at++)
        twin->order[at] = peak_of(twin, twin->present[at]);
    return share_in_rounds(twin, twin->order);
}
