/* The worth of more tasks to a job type: its best splits, and their upper concave hull.

   Follows policy_net.baselines.hull; kept, as in throughput.beliefs.TypeCache, until the type's speeds change. */

#include "heuristics.h"

#include <math.h>
#include <stdlib.h>

#define FAIRNESS_EXPONENT 0.25

typedef struct {
    double speed;
    Split split;
    int order;
} Found;

typedef struct {
    int tasks;
    double utility;
    Split split;
} Corner;

static int tasks_of(Split split) { return split.workers + split.ps; }

static int by_speed(const void *a, const void *b) {
    const Found *first = a, *second = b;
    if (first->speed != second->speed)
        return first->speed > second->speed ? -1 : 1;
    if (tasks_of(first->split) != tasks_of(second->split))
        return tasks_of(first->split) - tasks_of(second->split);
    return first->order - second->order;
}

static int by_tasks(const void *a, const void *b) {
    const Found *first = a, *second = b;
    if (tasks_of(first->split) != tasks_of(second->split))
        return tasks_of(first->split) - tasks_of(second->split);
    if (first->speed != second->speed)
        return first->speed > second->speed ? -1 : 1;
    return first->order - second->order;
}

/* All splits that are faster than everything within them, fastest first. */
static int unbeaten(const Hull *hull, const double *speed, Found *found) {
    double best[CELLS]; /* within the split of a cell */
    int count = 0;
    for (int ps = 0; ps <= hull->max_ps; ps++)
        for (int workers = 0; workers <= hull->max_workers; workers++) {
            int cell = cell_of(ps, workers);
            double here = ps < hull->min_ps || workers < hull->min_workers ? 0.0 : speed[cell];
            double fewer_ps = ps ? best[cell_of(ps - 1, workers)] : 0.0, fewer_workers = workers ? best[cell_of(ps, workers - 1)] : 0.0;
            best[cell] = fmax(here, fmax(fewer_ps, fewer_workers));
            if (here > 0.0 && here > fewer_ps && here > fewer_workers) {
                found[count] = (Found){here, {workers, ps}, count};
                count++;
            }
        }
    qsort(found, (size_t)count, sizeof(Found), by_speed);
    return count;
}

static double slope(const Corner *start, const Corner *end) { return (end->utility - start->utility) / (end->tasks - start->tasks); }

static void make(Hull *hull, const double *speed) {
    Found found[CELLS];
    Corner corner[CELLS + 1];
    int corners = 1;
    double fastest = 0.0;
    hull->splits = unbeaten(hull, speed, found);
    for (int i = 0; i < hull->splits; i++) {
        hull->split[i] = found[i].split;
        found[i].order = i;
    }
    qsort(found, (size_t)hull->splits, sizeof(Found), by_tasks);
    corner[0] = (Corner){0, 0.0, {0, 0}};
    for (int i = 0; i < hull->splits; i++) {
        if (found[i].speed <= fastest)
            continue;
        fastest = found[i].speed;
        Corner next = {tasks_of(found[i].split), pow(fastest, FAIRNESS_EXPONENT) / FAIRNESS_EXPONENT, found[i].split};
        while (corners > 1 && slope(&corner[corners - 2], &corner[corners - 1]) <= slope(&corner[corners - 1], &next))
            corners--;
        corner[corners++] = next;
    }
    hull->segments = corners - 1;
    for (int i = 0; i < hull->segments; i++)
        hull->segment[i] = (Segment){corner[i].split, corner[i + 1].split, slope(&corner[i], &corner[i + 1])};
}

/* The number of a hull for such a job; negative without memory. */
static int find(Twin *twin, const Job *spec) {
    for (int i = 0; i < twin->hulls; i++) {
        const Hull *known = twin->hull[i];
        if (known->type == spec->type && known->max_ps == spec->max_ps && known->max_workers == spec->max_workers &&
            known->min_ps == spec->min_ps && known->min_workers == spec->min_workers)
            return i;
    }
    if (twin->hulls == twin->most_hulls) {
        int more = twin->most_hulls ? 2 * twin->most_hulls : 64;
        Hull **grown = realloc(twin->hull, (size_t)more * sizeof(Hull *));
        if (!grown)
            return -1;
        twin->hull = grown;
        twin->most_hulls = more;
    }
    Hull *hull = calloc(1, sizeof(Hull));
    if (!hull)
        return -1;
    hull->type = (int)spec->type;
    hull->max_ps = (int)spec->max_ps, hull->max_workers = (int)spec->max_workers;
    hull->min_ps = (int)spec->min_ps, hull->min_workers = (int)spec->min_workers;
    twin->hull[twin->hulls] = hull;
    return twin->hulls++;
}

/* The hull of a job's type under the job's caps, at the speeds that `fits_refresh` found; NULL without memory. */
const Hull *hull_of(Twin *twin, int job) {
    State *state = &twin->job[job];
    if (!state->hull)
        state->hull = 1 + find(twin, &twin->in->job[job]);
    if (!state->hull) {
        twin->lacks_memory = true;
        return NULL;
    }
    Hull *hull = twin->hull[state->hull - 1];
    const Belief *belief = &twin->belief[hull->type];
    if (hull->version != belief->version) {
        hull->version = belief->version;
        make(hull, belief->speed);
    }
    return hull;
}
