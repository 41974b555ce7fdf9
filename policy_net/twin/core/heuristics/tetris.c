/* Tetris: demand that aligns best with what is free, less the work that is left.

   Follows policy_net.baselines.tetris. */

#include "heuristics.h"

#include <math.h>
#include <string.h>

#define ROUNDING 1e-9

/* As numpy adds up: in pairs of halves, and within 128 of them eight sums side by side. */
static double pairwise_sum(const double *value, int count) {
    if (count > 128) {
        int half = count / 2;
        half -= half % 8;
        return pairwise_sum(value, half) + pairwise_sum(value + half, count - half);
    }
    double sum = 0.0;
    int next = 0;
    if (count >= 8) {
        double part[8];
        memcpy(part, value, sizeof part);
        for (next = 8; next < count - count % 8; next++)
            part[next % 8] += value[next];
        sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    }
    for (; next < count; next++)
        sum += value[next];
    return sum;
}

/* Remaining work in the unit of the shares: so that both count the same over the jobs that wait. */
static void scale(Twin *twin, const double *share, const bool *waiting, double *work) {
    double *values = twin->scratch, alignment = 0.0, mean = 0.0;
    int count = 0;
    bool any = false;
    for (int at = 0; at < twin->presents; at++) {
        any = any || work[at] != 0.0;
        if (waiting[at])
            values[count++] = share[2 * at] + share[2 * at + 1];
    }
    if (!any)
        return;
    alignment = pairwise_sum(values, count) / count;
    count = 0;
    for (int at = 0; at < twin->presents; at++)
        if (waiting[at])
            values[count++] = work[at];
    mean = pairwise_sum(values, count) / count;
    for (int at = 0; at < twin->presents; at++)
        work[at] *= alignment / mean;
}

bool tetris(Twin *twin) {
    Capacity *capacity = &twin->plan;
    double *share = twin->inputs, *work = twin->key, free_cpu = 1.0, free_gpu = 1.0;
    bool *waiting = twin->waiting;
    if (!heuristic_open(twin))
        return false;
    double cpu = (double)(twin->total_cpu > 1 ? twin->total_cpu : 1), gpu = (double)(twin->total_gpu > 1 ? twin->total_gpu : 1);
    for (int at = 0; at < twin->presents; at++) {
        int job = twin->present[at];
        const Job *spec = &twin->in->job[job];
        Split size = requested_size(twin, job);
        share[2 * at] = (double)(size.workers * spec->worker_cpu + size.ps * spec->ps_cpu) / cpu;
        share[2 * at + 1] = (double)(size.workers * spec->worker_gpu + size.ps * spec->ps_gpu) / gpu;
        double seconds = remaining_seconds(twin, job, size);
        waiting[at] = seconds < INFINITY;
        work[at] = (waiting[at] ? seconds : 0.0) * (share[2 * at] + share[2 * at + 1]);
    }
    scale(twin, share, waiting, work);
    capacity_begin(twin, capacity);
    for (;;) {
        int best = -1;
        double highest = 0.0;
        for (int at = 0; at < twin->presents; at++) {
            double score = share[2 * at] * free_cpu + share[2 * at + 1] * free_gpu - work[at];
            if (waiting[at] && (best < 0 || score > highest)) {
                best = at;
                highest = score;
            }
        }
        if (best < 0)
            break;
        waiting[best] = false;
        if (!capacity_change(twin, capacity, best, requested_size(twin, twin->present[best])))
            continue;
        free_cpu -= share[2 * best];
        free_gpu -= share[2 * best + 1];
        for (int at = 0; at < twin->presents; at++)
            waiting[at] = waiting[at] && share[2 * at] <= free_cpu + ROUNDING && share[2 * at + 1] <= free_gpu + ROUNDING;
    }
    capacity_grant(twin, capacity);
    return !twin->lacks_memory;
}
