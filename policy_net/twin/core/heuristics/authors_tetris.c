/* Tetris as the code that the DL2 authors published has it: node by node, by alignment and longest remaining work.

   Follows policy_net.baselines.authors. */

#include "heuristics.h"

#define UNITS_PER_GPU 4
#define MILLI 1000.0

/* The first of the jobs below their caps with the highest score on what a node has left; negative on a full node. */
static int best(const Twin *twin, const double *demand, const double *work, double mean_work, int64_t node) {
    double *alignment = twin->scratch, highest = 0.0;
    double cpu = (double)twin->left_cpu[node] / MILLI, gpu = (double)(twin->left_gpu[node] * UNITS_PER_GPU);
    for (int at = 0; at < twin->presents; at++)
        alignment[at] = demand[2 * at] * cpu + demand[2 * at + 1] * gpu;
    double whole = pairwise_sum(alignment, twin->presents), weight = whole / twin->presents / mean_work;
    int found = -1;
    for (int at = 0; whole > 0.0 && at < twin->presents; at++) {
        double score = alignment[at] + weight * work[at];
        if (twin->waiting[at] && (found < 0 || score > highest)) {
            found = at;
            highest = score;
        }
    }
    return found;
}

bool tetris_authors(Twin *twin) {
    double *demand = twin->inputs, *work = twin->key;
    int growing = 0;
    bool any = false;
    authors_open(twin);
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        const Job *spec = &twin->in->job[index];
        Split bundle = bundle_of(spec);
        demand[2 * at] = (double)(bundle.workers * spec->worker_cpu + bundle.ps * spec->ps_cpu) / MILLI;
        demand[2 * at + 1] = (double)((bundle.workers * spec->worker_gpu + bundle.ps * spec->ps_gpu) * UNITS_PER_GPU);
        work[at] = (demand[2 * at] + demand[2 * at + 1]) * share_left(&twin->job[index]);
        twin->waiting[at] = most_bundles(spec) > 0;
        growing += twin->waiting[at];
        any = any || work[at] != 0.0;
    }
    double mean_work = pairwise_sum(work, twin->presents) / twin->presents;
    for (int64_t node = 0; any && growing && node < twin->in->nodes; node++)
        for (int at; growing && (at = best(twin, demand, work, mean_work, node)) >= 0;) {
            const Job *spec = &twin->in->job[twin->present[at]];
            if (!authors_grant_on(twin, node, at, bundle_of(spec)))
                break;
            if (twin->plan.held[at].workers >= most_bundles(spec)) {
                twin->waiting[at] = false;
                growing--;
            }
        }
    authors_decide(twin);
    return true;
}
