/* Beliefs about workers apart, and what follows from reports; and the fewest nodes for so many workers.

   Follows policy_net.throughput.place_effects and the pools of policy_net.set_policy.pools, of one GPU type. */

#include "places.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOISE 0.27
#define MOST_COUNT 50
#define REFIT_GROWTH 0.1
#define MOST_BETWEEN_FITS 100
#define FARTHEST 20.0
#define GENERAL_SPAN_SD 0.5
#define TYPE_SPAN_SD 0.4
#define SIZE_SPAN_SD 0.3

static int64_t tasks_on_empty(const Case *in, int64_t class, int64_t node) {
    int64_t fitting = MOST_WORKERS;
    if (in->class_gpu[class] && in->node_gpu[node] / in->class_gpu[class] < fitting)
        fitting = in->node_gpu[node] / in->class_gpu[class];
    if (in->class_cpu[class] && in->node_cpu[node] / in->class_cpu[class] < fitting)
        fitting = in->node_cpu[node] / in->class_cpu[class];
    return fitting;
}

/* Memory for plans that say where tasks go, once a run; false without memory. */
bool pool_open(Twin *twin) {
    const Case *in = twin->in;
    size_t jobs = (size_t)in->jobs;
    Pool *pool = twin->pool = calloc(1, sizeof(Pool));
    if (!pool)
        return false;
    pool->fewest = calloc((size_t)in->classes * APART, sizeof(int));
    pool->placement = calloc(jobs, sizeof(Placement));
    pool->staying = malloc(jobs * sizeof(Placement));
    pool->anew = malloc(jobs * sizeof(Placement));
    pool->chooser = malloc(jobs * sizeof(Chooser));
    if (!(pool->fewest && pool->placement && pool->staying && pool->anew && pool->chooser))
        return false;
    pool_renew(twin);
    return true;
}

/* Count anew the fewest nodes for so many workers, of those there are now. */
void pool_renew(Twin *twin) {
    const Case *in = twin->in;
    Pool *pool = twin->pool;
    memset(pool->fewest, 0, (size_t)in->classes * APART * sizeof(int));
    pool->version++;
    for (int64_t class = 0; class < in->classes; class++) {
        int64_t nodes_with[MOST_WORKERS + 1] = {0};
        for (int64_t node = 0; node < in->nodes; node++)
            nodes_with[tasks_on_empty(in, class, node)]++;
        int workers = 1, nodes = 0;
        for (int64_t fitting = MOST_WORKERS; fitting > 0; fitting--)
            for (int64_t i = 0; i < nodes_with[fitting] && workers <= MOST_WORKERS; i++) {
                nodes++;
                for (int64_t task = 0; task < fitting && workers <= MOST_WORKERS; task++)
                    pool->fewest[class * APART + workers++] = nodes;
            }
    }
}

void pool_close(Twin *twin) {
    Pool *pool = twin->pool;
    if (!pool)
        return;
    void *owned[] = {pool->fewest, pool->placement, pool->staying, pool->anew, pool->chooser, pool};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
}

static double shrunk(Mean found, double towards, double deviation) {
    double trust = (double)found.count / ((double)found.count + (NOISE / deviation) * (NOISE / deviation));
    return towards + trust * (found.mean - towards);
}

/* From the general to the particular: the kind, the type, and the type with so many nodes and workers. */
static void span_keys(const Type *type, int64_t number, int workers, int nodes, int64_t *key) {
    int size = 0;
    for (int left = workers; left > 1; left /= 2)
        size++;
    key[0] = type->span_kind;
    key[1] = SPAN_KINDS + number * SPANS_OF_TYPE;
    key[2] = key[1] + 1 + (nodes > 2 ? SPAN_SIZES : 0) + size;
}

static double believed_effect(const Twin *twin, int type, int workers, int nodes) {
    const Mean *believed = twin->in->span_believed;
    int64_t key[3];
    if (nodes < 2)
        return 1.0;
    span_keys(&twin->in->type[type], type, workers, nodes, key);
    double effect = shrunk(believed[key[0]], 0.0, GENERAL_SPAN_SD);
    effect = shrunk(believed[key[1]], effect, TYPE_SPAN_SD);
    return exp(shrunk(believed[key[2]], effect, SIZE_SPAN_SD));
}

/* The speed with workers on so many nodes over that in the best place, as plans count it. */
double planned_effect(const Twin *twin, int type, int workers, int nodes) {
    const double *planned = twin->in->type[type].planned;
    return planned ? planned[workers * APART + nodes] : believed_effect(twin, type, workers, nodes);
}

/* What a job has trained since the latest decision, as it would have in the best place. */
double samples_together(const Twin *twin, int index) {
    const State *job = &twin->job[index];
    if (!twin->in->plans_places || !job->can_train || job->samples <= 0.0)
        return job->samples;
    return job->samples / believed_effect(twin, (int)twin->in->job[index].type, job->running.workers, job->apart);
}

static void add_report(Mean *found, double value) {
    if (found->count < MOST_COUNT)
        found->count++;
    found->mean += (value - found->mean) / (double)found->count;
}

/* Learn from what a job did, whose speed in the best place is believed to be this. */
static void learn(Twin *twin, int index, double believed_speed) {
    Case *in = twin->in;
    const State *job = &twin->job[index];
    int64_t *reports = in->place_reports, key[3], type = in->job[index].type;
    bool usable = job->seconds > 0.0 && job->seconds < INFINITY && job->samples > 0.0 && job->samples < INFINITY;
    if (!usable || !(believed_speed > 0.0))
        return;
    if (job->apart > 1) {
        double log_ratio = log(job->samples / job->seconds / believed_speed), farthest = log(FARTHEST);
        log_ratio = fmin(fmax(log_ratio, -farthest), farthest);
        span_keys(&in->type[type], type, job->running.workers, job->apart, key);
        for (int i = 0; i < 3; i++)
            add_report(&in->span_seen[key[i]], log_ratio);
    }
    if (++reports[REPORTS] < reports[REFIT_AT])
        return;
    memcpy(in->span_believed, in->span_seen, sizeof(Mean) * (size_t)(SPAN_KINDS + in->stated_types * SPANS_OF_TYPE));
    int64_t growth = (int64_t)(REFIT_GROWTH * (double)reports[REPORTS]);
    growth = growth < MOST_BETWEEN_FITS ? growth : MOST_BETWEEN_FITS;
    reports[REFIT_AT] = reports[REPORTS] + (growth > 1 ? growth : 1);
    reports[FITS]++;
    twin->pool->version++;
}

/* Learn from what every job did, once speeds have been learned from it; false without memory. */
bool places_observe(Twin *twin) {
    for (int at = 0; at < twin->presents; at++) {
        int index = twin->present[at], type = (int)twin->in->job[index].type;
        const State *job = &twin->job[index];
        if (!job->runs || !job->can_train)
            continue;
        double speed = 0.0;
        if (twin->belief[type].scale) {
            if (!belief_refresh(twin, type))
                return false;
            speed = twin->belief[type].median[cell_of(job->running.ps, job->running.workers)];
        }
        learn(twin, index, speed);
    }
    return true;
}
