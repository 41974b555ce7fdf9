/* Placement by the plan itself: tasks stay where they are and the rest goes around them, or all are placed anew if that pays.

   Follows policy_net.set_policy.places and policy_net.placement.together, of one pool whose jobs move freely. */

#include "places.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_LOSS 0.02
#define LEAST_SPEED 1e-9

static int apart_of(const Placement *placement) {
    int nodes = 0;
    for (int i = 0; i < placement->count; i++)
        nodes += placement->share[i].workers > 0;
    return nodes;
}

static Split tasks_of(const Placement *placement) {
    Split tasks = {0, 0};
    for (int i = 0; i < placement->count; i++) {
        tasks.workers += placement->share[i].workers;
        tasks.ps += placement->share[i].ps;
    }
    return tasks;
}

static bool same(const Placement *one, const Placement *other) {
    return one->count == other->count && !memcmp(one->share, other->share, sizeof(Share) * (size_t)one->count);
}

/* The share of its speed that a job is believed to lose where its workers are on two nodes. */
static double loss_apart(const Twin *twin, int type, int workers) {
    if (workers < 2)
        return 0.0;
    return 1.0 - planned_effect(twin, type, workers, 2) / planned_effect(twin, type, workers, 1);
}

static int by_choice(const void *a, const void *b) {
    const Chooser *first = a, *second = b;
    if (first->class != second->class)
        return first->class < second->class ? -1 : 1;
    if (first->loose != second->loose)
        return first->loose ? 1 : -1;
    if (first->workers != second->workers)
        return first->workers > second->workers ? -1 : 1;
    if (first->loss != second->loss)
        return first->loss > second->loss ? -1 : 1;
    return first->at - second->at;
}

/* The jobs that were granted anything, in the order in which they choose; how many these are. */
static int in_order(Twin *twin) {
    int count = 0;
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        const Job *spec = &twin->in->job[index];
        State *job = &twin->job[index];
        Split placed = tasks_of(&twin->pool->placement[index]);
        job->stays = twin->pool->placement[index].count && job->granted.workers == placed.workers && job->granted.ps == placed.ps;
        if (job->granted.workers + job->granted.ps == 0)
            continue;
        double loss = loss_apart(twin, (int)spec->type, job->granted.workers);
        bool loose = spec->uses_ps && loss < LEAST_LOSS;
        twin->pool->chooser[count++] = (Chooser){spec->worker_class, loss, index, job->granted.workers, at, loose};
    }
    qsort(twin->pool->chooser, (size_t)count, sizeof(Chooser), by_choice);
    return count;
}

/* Place those that do not stay around those that do, or all; false if a task finds no node this way. */
static bool together(Twin *twin, int count, bool staying, Placement *found) {
    nodes_clear(twin);
    for (int i = 0; i < count; i++) {
        int index = twin->pool->chooser[i].job;
        const Job *spec = &twin->in->job[index];
        found[index].count = 0;
        if (!staying || !twin->job[index].stays)
            continue;
        found[index] = twin->pool->placement[index];
        for (int k = 0; k < found[index].count; k++) {
            const Share *share = &found[index].share[k];
            twin->left_cpu[share->node] -= share->workers * spec->worker_cpu + share->ps * spec->ps_cpu;
            twin->left_gpu[share->node] -= share->workers * spec->worker_gpu + share->ps * spec->ps_gpu;
            if (twin->left_cpu[share->node] < 0 || twin->left_gpu[share->node] < 0) /* it came back smaller */
                return false;
        }
    }
    for (int role = 0; role < 2; role++)
        for (int i = 0; i < count; i++) {
            int index = twin->pool->chooser[i].job;
            const Job *spec = &twin->in->job[index];
            Split granted = twin->job[index].granted;
            int64_t class = role ? spec->ps_class : spec->worker_class;
            if (staying && twin->job[index].stays)
                continue;
            if (pack(twin, class, role ? granted.ps : granted.workers, !role && !twin->pool->chooser[i].loose, !role, &found[index]) < 0)
                return false;
        }
    return true;
}

static double effect_of(const Twin *twin, int index, const Placement *placement) {
    return planned_effect(twin, (int)twin->in->job[index].type, twin->job[index].granted.workers, apart_of(placement));
}

static int fewest_of(const Twin *twin, int index) {
    return fewest_nodes(twin, twin->in->job[index].worker_class, twin->job[index].granted.workers);
}

/* Whether some job is on more nodes than it needs, and is believed to be slower for it. */
static bool loses(const Twin *twin, int count) {
    for (int i = 0; i < count; i++) {
        int index = twin->pool->chooser[i].job, fewest = fewest_of(twin, index);
        const Placement *placement = &twin->pool->staying[index];
        if (!fewest || apart_of(placement) <= fewest)
            continue;
        double best = planned_effect(twin, (int)twin->in->job[index].type, twin->job[index].granted.workers, fewest);
        if (effect_of(twin, index, placement) < (1.0 - LEAST_LOSS) * best)
            return true;
    }
    return false;
}

/* Whether the time that jobs save by other places is longer than the restarts of those that move for it. */
static bool pays(const Twin *twin, int count) {
    double saved = 0.0, restart = restart_seconds(twin);
    for (int i = 0; i < count; i++) {
        int index = twin->pool->chooser[i].job, fewest = fewest_of(twin, index);
        const State *job = &twin->job[index];
        const Placement *before = &twin->pool->staying[index], *after = &twin->pool->anew[index];
        if (same(before, after))
            continue;
        double samples = remaining_samples(twin, job, index), speed = table_speed(job->steps, job->granted);
        double first = samples / fmax(speed * effect_of(twin, index, before), LEAST_SPEED);
        double second = samples / fmax(speed * effect_of(twin, index, after), LEAST_SPEED);
        double least = fewest ? planned_effect(twin, (int)twin->in->job[index].type, job->granted.workers, fewest) : 1.0;
        saved += (first - second) * least;
        if (job->stays)
            saved -= restart;
    }
    return saved > 0.0;
}

/* As tasks are spread, which fitted when they were granted. */
static bool spread_out(Twin *twin, int count, Placement *found) {
    int pieces = 0;
    for (int i = 0; i < count; i++)
        found[twin->pool->chooser[i].job].count = 0;
    for (int i = 0; i < count; i++)
        for (int role = 0; role < 2; role++)
            pieces = add_piece(twin, twin->pool->chooser[i].job, !role, 2 * i + role, pieces);
    return spread(twin, pieces, found);
}

/* Give every job its places; one that is elsewhere with as many tasks has moved. */
static void adopt(Twin *twin, const Placement *found) {
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        State *job = &twin->job[index];
        Placement *placement = &twin->pool->placement[index];
        job->moved = false;
        if (job->granted.workers + job->granted.ps == 0) {
            placement->count = 0;
            continue;
        }
        job->moved = placement->count && !same(placement, &found[index]);
        *placement = found[index];
        job->apart = apart_of(placement);
    }
}

/* Place what was granted; false if a task finds no node, which the plan has made sure of. */
bool place_as_planned(Twin *twin) {
    int count = in_order(twin);
    Placement *chosen = twin->pool->staying;
    bool stay = together(twin, count, true, twin->pool->staying);
    if (!stay || loses(twin, count)) {
        bool anew = together(twin, count, false, twin->pool->anew);
        if (anew && !(stay && !pays(twin, count)))
            chosen = twin->pool->anew;
        else if (!stay && !spread_out(twin, count, chosen))
            return false;
    }
    adopt(twin, chosen);
    return true;
}
