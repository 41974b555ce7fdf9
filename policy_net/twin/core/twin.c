/* The run of one case, from outside: open it, advance it by so many decisions, close it. */

#include "heuristics/heuristics.h"
#include "places/places.h"

#include <stdlib.h>
#include <string.h>

size_t piece_size(void);

#ifndef TWIN_SOURCES
#define TWIN_SOURCES ""
#endif

/* The digest of the sources that this was built of. */
const char *twin_sources(void) { return TWIN_SOURCES; }

/* Sizes of the structures that both sides state: they must agree before anything is run. */
int64_t twin_sizes(int64_t *sizes) {
    sizes[0] = sizeof(Case), sizes[1] = sizeof(Job), sizes[2] = sizeof(Type), sizes[3] = sizeof(Cell), sizes[4] = sizeof(Standing);
    sizes[5] = sizeof(Session), sizes[6] = sizeof(Mean), sizes[7] = sizeof(Network);
    sizes[8] = sizeof(Group), sizes[9] = sizeof(Action);
    return 10;
}

void twin_close(Twin *twin) {
    if (!twin)
        return;
    for (int64_t at = 0; twin->table && at < twin->table_buckets; at++)
        free(twin->table[at]);
    for (int at = 0; at < twin->hulls; at++)
        free(twin->hull[at]);
    void *owned[] = {twin->job,     twin->present, twin->belief,   twin->table,   twin->inputs, twin->scratch, twin->length, twin->hidden,
                     twin->queue,   twin->used,    twin->refusal,  twin->loads,   twin->left_cpu,
                     twin->left_gpu, twin->fitting,   twin->placed,   twin->stamp,   twin->piece,  twin->gathered, twin->bin,
                     twin->hull,    twin->sharing, twin->key,      twin->order,   twin->waiting, twin->per_round,
                     twin->placement_before,    twin->node_before, twin->place_of};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    pool_close(twin);
    capacity_free(&twin->plan);
    capacity_free(&twin->then);
    free(twin);
}

/* A run of a case, which must stay as it is until the run is closed; NULL without memory. */
Twin *twin_open(Case *in, Standing *out) {
    Twin *twin = calloc(1, sizeof(Twin));
    if (!twin)
        return NULL;
    size_t jobs = (size_t)in->jobs, nodes = (size_t)in->most_nodes, tasks = jobs * MOST_WORKERS; /* a job with servers has fewer */
    twin->in = in;
    twin->out = out;
    twin->decide = scheduler_of(in->scheduler);
    twin->table_buckets = 1024;
    twin->job = calloc(jobs, sizeof(State));
    twin->present = malloc(jobs * sizeof(int));
    twin->belief = calloc((size_t)in->types, sizeof(Belief));
    twin->table = calloc((size_t)twin->table_buckets, sizeof(Table *));
    twin->inputs = malloc(jobs * OWN_FEATURES * sizeof(double));
    twin->scratch = malloc(jobs * sizeof(double));
    twin->length = malloc(2 * jobs * sizeof(Length));
    twin->hidden = malloc(2 * WIDEST * sizeof(double));
    twin->queue = malloc(jobs * sizeof(Queued));
    twin->refusal = malloc(jobs * CELLS * sizeof(Split));
    twin->used = malloc((size_t)in->classes * sizeof(int64_t));
    twin->loads = malloc(nodes * sizeof(Loaded));
    twin->left_cpu = malloc(nodes * sizeof(int64_t));
    twin->left_gpu = malloc(nodes * sizeof(int64_t));
    twin->fitting = malloc(nodes * sizeof(int64_t));
    twin->stamp = calloc(nodes, sizeof(int));
    twin->placed = malloc(tasks * sizeof(int));
    twin->piece = malloc(2 * jobs * piece_size());
    twin->bin = malloc(jobs * sizeof(int));
    twin->gathered = calloc((size_t)(in->with_sessions ? in->most_sessions : 1), sizeof(Gathered));
    twin->sharing = malloc(jobs * sizeof(Sharing));
    twin->key = malloc(jobs * sizeof(double));
    twin->order = malloc(jobs * sizeof(int));
    twin->waiting = malloc(jobs * sizeof(bool));
    twin->per_round = malloc((size_t)in->classes * sizeof(int64_t));
    twin->keeps_placements = in->distance_matters || (in->changes_nodes && !in->pooled);
    twin->placement_before = malloc((in->changes_nodes ? jobs : 1) * sizeof(Placement));
    twin->node_before = malloc(nodes * sizeof(int));
    twin->place_of = malloc(nodes * sizeof(int));
    bool changes = twin->placement_before && twin->node_before && twin->place_of;
    bool capacities = capacity_create(&twin->plan, in) && capacity_create(&twin->then, in);
    bool pool = !in->plans_places || pool_open(twin);
    bool heuristics = twin->sharing && twin->key && twin->order && twin->waiting && twin->per_round;
    if (!(capacities && changes && heuristics && pool && twin->decide && twin->job && twin->present && twin->belief && twin->table && twin->inputs && twin->scratch && twin->length && twin->hidden &&
          twin->queue && twin->refusal && twin->used && twin->loads && twin->left_cpu &&
          twin->left_gpu && twin->fitting && twin->stamp && twin->placed && twin->piece && twin->bin && twin->gathered)) {
        twin_close(twin);
        return NULL;
    }
    nodes_open(twin);
    memset(out, 0, sizeof *out);
    if (in->scheduler == SET) {
        lifetimes_open(twin);
        prices_open(twin);
    }
    if (in->with_sessions)
        sessions_open(twin);
    engine_begin(twin);
    return twin;
}

/* Take up to so many decisions; says the status. */
int64_t twin_advance(Twin *twin, int64_t decisions) {
    while (decisions-- > 0 && twin->out->status == RUNNING)
        engine_step(twin);
    return twin->out->status;
}
