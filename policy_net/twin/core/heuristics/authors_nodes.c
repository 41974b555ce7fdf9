/* Nodes as the code that the DL2 authors published fills them: task by task, as they are granted, never moved again.

   Follows policy_net.baselines.authors, and of what the simulator makes of a decision that says where its tasks
   go, policy_net.laboratory.simulation.engine. */

#include "heuristics.h"

#include <string.h>

#define UNITS_PER_GPU 4
#define MILLI 1000

/* What such a job is granted at a time: a worker and a parameter server, or a worker alone if it needs none. */
Split bundle_of(const Job *spec) { return (Split){1, spec->uses_ps != 0}; }

/* So many bundles until the job's caps are reached. */
int most_bundles(const Job *spec) {
    return (int)(spec->uses_ps && spec->max_ps < spec->max_workers ? spec->max_ps : spec->max_workers);
}

/* The share of its epochs that a job still has to train, of those declared or guessed. */
double share_left(const State *job) { return job->total_epochs > 0.0 ? job->remaining_epochs / job->total_epochs : 1.0; }

/* All nodes free, and no job with anything. */
void authors_open(Twin *twin) {
    nodes_clear(twin);
    for (int64_t node = 0; node < twin->in->nodes; node++)
        twin->loads[node] = (Loaded){0.0, (int)node};
    for (int at = 0; at < twin->presents; at++) {
        State *job = &twin->job[twin->present[at]];
        job_view(&twin->in->job[twin->present[at]], job);
        job->lying = 0;
        twin->plan.held[at] = (Split){0, 0};
    }
}

/* Give a job some tasks, all on one node; says whether they fit there. */
bool authors_grant_on(Twin *twin, int64_t node, int at, Split tasks) {
    int index = twin->present[at];
    const Job *spec = &twin->in->job[index];
    State *job = &twin->job[index];
    int64_t cpu = twin->left_cpu[node] - tasks.workers * spec->worker_cpu - tasks.ps * spec->ps_cpu;
    int64_t gpu = twin->left_gpu[node] - tasks.workers * spec->worker_gpu - tasks.ps * spec->ps_gpu;
    if (cpu < 0 || gpu < 0)
        return false;
    twin->left_cpu[node] = cpu;
    twin->left_gpu[node] = gpu;
    twin->plan.held[at].workers += tasks.workers;
    twin->plan.held[at].ps += tasks.ps;
    if (!twin->keeps_lies)
        return true;
    Share *lies = twin->lies + (int64_t)index * LIES;
    int place = 0;
    while (place < job->lying && lies[place].node < node)
        place++;
    if (place == job->lying || lies[place].node != node) {
        memmove(lies + place + 1, lies + place, sizeof(Share) * (size_t)(job->lying++ - place));
        lies[place] = (Share){(int)node, 0, 0};
    }
    lies[place].workers += tasks.workers;
    lies[place].ps += tasks.ps;
    return true;
}

/* The same on the node with the least load, in the authors' units. */
bool authors_grant(Twin *twin, int at, Split tasks) {
    Loaded *least = &twin->loads[0];
    int64_t cpu = twin->left_cpu[least->node], gpu = twin->left_gpu[least->node];
    if (!authors_grant_on(twin, least->node, at, tasks))
        return false;
    least->load += (double)(cpu - twin->left_cpu[least->node] + (gpu - twin->left_gpu[least->node]) * UNITS_PER_GPU * MILLI);
    loads_sink(twin->loads, (int)twin->in->nodes, 0);
    return true;
}

/* Where a job's workers lie, and whether other nodes hold its tasks than after the decision before. */
static void settle(Twin *twin, int index) {
    State *job = &twin->job[index];
    Share *lies = twin->lies + (int64_t)index * LIES, *lay = twin->lay + (int64_t)index * LIES;
    size_t size = sizeof(Share) * (size_t)job->lying;
    job->apart = 0;
    for (int i = 0; i < job->lying; i++)
        job->apart += lies[i].workers > 0;
    job->moved = job->lay && job->lying && (job->lay != job->lying || memcmp(lies, lay, size) != 0);
    memcpy(lay, lies, size);
    job->lay = job->lying;
}

/* The decision: what was granted, and where; jobs that cannot train with it get nothing. */
void authors_decide(Twin *twin) {
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at];
        const Job *spec = &twin->in->job[index];
        Split *held = &twin->plan.held[at];
        if (held->workers < spec->min_workers || held->ps < spec->min_ps) {
            *held = (Split){0, 0};
            twin->job[index].lying = 0;
        }
        if (twin->in->distance_matters)
            settle(twin, index);
    }
    room_grant(twin, &twin->plan);
}
