/* Nodes that come and go, and what jobs lose with them.

   Follows policy_net.laboratory.simulation.engine and simulated_job; when nodes come and go, and which these are, the
   reference's own timeline says (`Case.change`). */

#include "places/places.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void find_totals(Twin *twin) {
    twin->total_cpu = twin->total_gpu = 0;
    for (int64_t node = 0; node < twin->in->nodes; node++) {
        twin->total_cpu += twin->in->node_cpu[node];
        twin->total_gpu += twin->in->node_gpu[node];
    }
}

/* What follows from the nodes of the beginning. */
void nodes_open(Twin *twin) { find_totals(twin); }

static int by_node(const void *a, const void *b) { return ((const Share *)a)->node - ((const Share *)b)->node; }

/* Name the nodes of shares by their places since a change; those on nodes that are no more are left out. */
static int renamed(const Twin *twin, Share *share, int count) {
    int kept = 0;
    for (int i = 0; i < count; i++) {
        int place = twin->place_of[twin->node_before[share[i].node]];
        if (place >= 0)
            share[kept++] = (Share){place, share[i].workers, share[i].ps};
    }
    qsort(share, (size_t)kept, sizeof(Share), by_node);
    return kept;
}

/* Let nodes come and go; what is known of those before is still as it was. */
static bool change(Twin *twin, double until) {
    Case *in = twin->in;
    for (int64_t node = 0; node < in->nodes; node++)
        twin->node_before[node] = (int)in->node[node];
    if (in->change(until)) {
        twin->lacks_memory = true;
        return false;
    }
    return true;
}

/* Find anew what follows from the nodes. */
static void renew(Twin *twin) {
    Case *in = twin->in;
    find_totals(twin);
    for (int64_t number = 0; number < in->most_nodes; number++)
        twin->place_of[number] = -1;
    for (int64_t node = 0; node < in->nodes; node++)
        twin->place_of[in->node[node]] = (int)node;
    if (twin->pool)
        pool_renew(twin);
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        twin->job[index].sized = false;
        if (twin->pool)
            twin->pool->placement[index].count = renamed(twin, twin->pool->placement[index].share, twin->pool->placement[index].count);
    }
}

/* Let nodes come and go up to a time in which no job runs; false if that failed. */
bool nodes_advance(Twin *twin, double until) {
    if (twin->in->next_change_seconds > until)
        return true;
    if (!change(twin, until))
        return false;
    renew(twin);
    return true;
}

static void find_losses(Twin *twin, int index, double until) {
    const Case *in = twin->in;
    const Job *spec = &in->job[index];
    State *job = &twin->job[index];
    const Placement *placement = twin->pool ? &twin->pool->placement[index] : &twin->placement_before[index]; /* on the nodes of before */
    const Share *share = placement->share;
    for (int i = 0; i < placement->count; i++) {
        double lost_at = in->lost_at[twin->node_before[share[i].node]];
        if (lost_at == INFINITY)
            continue;
        int64_t gpus = share[i].workers * spec->worker_gpu + share[i].ps * spec->ps_gpu;
        job->stop = fmin(job->stop, lost_at);
        job->lost.workers += share[i].workers;
        job->lost.ps += share[i].ps;
        job->lost_gpu_seconds += (double)gpus * (until - lost_at);
        twin->out->gpu_seconds -= (double)gpus * (until - lost_at);
    }
}

/* Let nodes come and go up to the next decision: when jobs stop, and what they lose; false if that failed. */
bool nodes_change(Twin *twin, double until) {
    twin->changed = twin->in->next_change_seconds <= until;
    if (!twin->changed)
        return true;
    for (int at = 0; at < twin->presents; at++) {
        twin->job[twin->present[at]].stop = until;
        twin->job[twin->present[at]].lost = (Split){0, 0};
        twin->job[twin->present[at]].lost_gpu_seconds = 0.0;
    }
    if (twin->keeps_placements && !twin->pool && !place(twin, twin->placement_before))
        return false;
    if (!change(twin, until))
        return false;
    for (int at = 0; twin->keeps_placements && at < twin->presents; at++)
        find_losses(twin, twin->present[at], until);
    renew(twin);
    return true;
}

/* Take from jobs what they have lost, and what they have trained since the last checkpoint; they stop. */
void nodes_lose(Twin *twin) {
    for (int at = 0; twin->changed && at < twin->presents; at++) {
        int index = twin->present[at];
        State *job = &twin->job[index];
        if (job->lost.workers + job->lost.ps == 0 || !isnan(twin->in->end_at[index]))
            continue;
        job->running.workers -= job->lost.workers;
        job->running.ps -= job->lost.ps;
        if (twin->pool && job->running.workers + job->running.ps == 0) /* it is nowhere, even if its node is back */
            twin->pool->placement[index].count = 0;
        if (job->can_train && twin->in->checkpoint_seconds) {
            twin->out->lost_training_seconds += job->since_checkpoint_seconds;
            job->done_epochs = job->checkpoint_epochs;
            job->since_checkpoint_seconds = 0.0;
        }
        job->can_train = false;
        job->pause_seconds = 0.0;
    }
}
